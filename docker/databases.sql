-- Run once by the PostgreSQL image, on an empty volume: a database and an owner for each service, closed to the other.
\getenv prefect_password PREFECT_DB_PASSWORD
\getenv mlflow_password MLFLOW_DB_PASSWORD
CREATE ROLE prefect LOGIN PASSWORD :'prefect_password';
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow_password';
CREATE DATABASE prefect OWNER prefect;
CREATE DATABASE mlflow OWNER mlflow;
REVOKE CONNECT ON DATABASE prefect FROM PUBLIC;
REVOKE CONNECT ON DATABASE mlflow FROM PUBLIC;
