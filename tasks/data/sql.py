"""Records from a database, by a SQLAlchemy URL and a query."""

from collections.abc import Sequence

import pandas as pd
import sqlalchemy as sa

from configs.errors import DataError
from tasks.data.header import choose_columns

_PARTITION = 20_000


def read_sql(*, url: str, query: str, columns: Sequence[str]) -> pd.DataFrame:
    """Run one query and keep the wanted columns of its result.

    Args:
        url: a SQLAlchemy URL. It may hold a password, so no error shows more of it than driver, host and
            database.
        query: a SELECT; it runs in a transaction that is rolled back.
        columns: names to keep.

    Raises:
        DataError: the URL is wrong, or the database cannot be reached or refuses the query. The driver's
            own text is withheld, for it may quote a record or the password.
    """
    try:
        address = sa.engine.make_url(url)
        if "@" in (address.host or ""):  # a password with an @ in it, which would be read as the host
            raise ValueError
        place = "/".join(part for part in (address.drivername, address.host, address.database) if part)
        engine = sa.create_engine(address, hide_parameters=True, poolclass=sa.pool.NullPool)
    except Exception as error:
        raise DataError(
            f"data.source.url is no usable SQLAlchemy URL ({type(error).__name__}); it reads "
            "dialect+driver://user:password@host/database (an @ in the password is written %40), and the driver "
            "must be installed"
        ) from None
    try:
        with engine.connect().execution_options(stream_results=True) as connection:
            result = connection.execute(sa.text(query))
            choose_columns(list(result.keys()), columns, name=place, quote=True)
            rows = [row for part in result.columns(*columns).partitions(_PARTITION) for row in part]
            connection.rollback()
    except DataError:
        raise
    except Exception as error:
        code = getattr(getattr(error, "orig", None), "sqlstate", None)
        raise DataError(
            f"{place}: the query failed with {type(error).__name__}{f', SQLSTATE {code}' if code else ''}; "
            "the database's text is withheld, for it may quote a record. Run the query by hand to see it"
        ) from None
    finally:
        engine.dispose()
    return pd.DataFrame(
        {name: [row[at] for row in rows] for at, name in enumerate(columns)},
        columns=list(columns),
        dtype=object,
    )
