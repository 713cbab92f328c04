import codecs
import csv
import resource
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.errors import DataError
from tasks.data.csvfile import CELL_LIMIT, read_header
from tasks.data.sources import read_records

SECRET = "someone@example.org"
cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


def write(folder: Path, content: bytes, name: str = "records.csv") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def read(path: str, columns=("id", "age"), missing=("", "?"), **source) -> pd.DataFrame:
    return read_records(source={"kind": "csv", "path": path, **source}, columns=columns, missing=missing)


def refusal(path: str, **options) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **options)
    assert caught.value.exit_code == 20
    assert caught.value.__cause__ is None
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_only_the_wanted_columns_are_read_in_the_wanted_order_as_text(tmp_path):
    frame = read(write(tmp_path, b"secret,age,id\nx,1,a\ny,02,b\n"))
    assert list(frame.columns) == ["id", "age"]
    assert {str(dtype) for dtype in frame.dtypes} == {"str"}
    assert frame.age.tolist() == ["1", "02"]


def test_missing_texts_become_na_and_the_empty_text_only_if_listed(tmp_path):
    path = write(tmp_path, b'id,age\na,?\nb,\nc,"?"\nd,4\n')
    assert read(path).age.isna().tolist() == [True, True, True, False]
    kept = read(path, missing=("?",)).age
    assert kept.isna().tolist() == [True, False, True, False]
    assert kept[1] == ""


def test_quotes_delimiters_and_line_breaks_within_cells_are_kept(tmp_path):
    frame = read(write(tmp_path, b'id,age\r\n"a,""b""\nc",1\r\n"d;",2\r\n'))
    assert frame.id.tolist() == ['a,"b"\nc', "d;"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_is_read(tmp_path, end):
    assert read(write(tmp_path, end.join([b"id,age", b"a,1", b"b,2"]))).age.tolist() == ["1", "2"]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    assert read(write(tmp_path, codecs.BOM_UTF8 + b"id,age\na,1\n")).id.tolist() == ["a"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig"])
def test_another_encoding_is_read_when_it_is_named(tmp_path, encoding):
    path = write(tmp_path, "id,age\nZürich,1\n".encode(encoding))
    assert read(path, encoding=encoding).id.tolist() == ["Zürich"]


def test_undecodable_bytes_are_told_by_their_offset_also_in_a_column_nobody_reads(tmp_path):
    said = refusal(write(tmp_path, b"id,age,note\na,1,ok\nb,2,Z\xfcrich\n"))
    assert "byte 24 " in said
    assert "encoding" in said


def test_the_offset_of_an_undecodable_byte_is_exact_beyond_the_first_block(tmp_path):
    content = b"id,age\n" + b"a,1\n" * 2_000_000 + b"\xc3,1\n"
    assert f"byte {content.index(0xC3)} " in refusal(write(tmp_path, content))


def test_utf16_without_its_name_is_recognised(tmp_path):
    assert "encoding: utf-16" in refusal(write(tmp_path, "id,age\na,1\n".encode("utf-16")))


def test_a_delimiter_that_is_none_is_refused(tmp_path):
    path = write(tmp_path, b"id,age\na,1\n")
    for delimiter in (",,", '"', "\n", "§"):
        assert "one character" in refusal(path, delimiter=delimiter)


def test_an_unknown_encoding_is_refused(tmp_path):
    path = write(tmp_path, b"id,age\na,1\n")
    for encoding in ("utf-99", "hex", "rot13", "a\0b"):
        assert "no text encoding" in refusal(path, encoding=encoding)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert "does not exist" in refusal(str(tmp_path / "none.csv"))
    assert "is a folder" in refusal(str(tmp_path))
    assert "cannot be read" in refusal("x" * 5000)


@pytest.mark.parametrize("content", [b"", b"\n\n", codecs.BOM_UTF8])
def test_an_empty_file_is_refused(tmp_path, content):
    assert "is empty" in refusal(write(tmp_path, content))


@pytest.mark.parametrize("content", [b"id,age\n", b"id,age", b"id,age\r\n\r\n"])
def test_a_header_alone_is_refused(tmp_path, content):
    assert "no record" in refusal(write(tmp_path, content))


def test_one_row_is_read(tmp_path):
    assert len(read(write(tmp_path, b"id,age\na,1"))) == 1


def test_missing_columns_are_all_named_with_the_place_of_what_was_meant(tmp_path):
    said = refusal(write(tmp_path, b"x,Id ,agee,sex\n0,a,1,f\n"), columns=("id", "age", "sex", "nothing"))
    assert "columns 'id' (column 2 is named the same but for case or blanks)" in said
    assert "'age' (column 3 is named much like it), 'nothing' not found; 1 of its 4 columns has a wanted name" in said
    assert "agee" not in said


def test_no_cell_of_the_first_line_is_quoted_even_where_one_is_spelt_like_a_column(tmp_path):
    # Without a header the first line is a record: of somebody with diabetes, whose address must not be told.
    said = refusal(write(tmp_path, f"diabetes,Diabetis,ag,{SECRET}\n".encode()), columns=("diabetes", "age", "diabete"))
    for cell in ("Diabetis", "'ag'", SECRET):
        assert cell not in said
    refusal(write(tmp_path, f"id,sex\n{SECRET},f\n".encode()))


def test_a_file_without_a_header_shows_nothing_of_its_first_record(tmp_path):
    said = refusal(write(tmp_path, f"{SECRET},47\nother,48\n".encode()))
    assert "none of its 2 columns has a wanted name: is its first line a header?" in said
    assert "47" not in said


def test_a_quotation_mark_opened_in_the_header_shows_no_record(tmp_path):
    said = refusal(write(tmp_path, f'id,"sex\n{SECRET},1\n"\n'.encode()))
    assert "'age' not found; 1 of its 2 columns has a wanted name" in said


def test_a_header_that_names_a_wanted_column_twice_is_refused_and_another_is_not(tmp_path):
    assert "'age' stand more than once" in refusal(write(tmp_path, b"id,age,age\na,1,2\n"))
    assert len(read(write(tmp_path, b"id,age,,\na,1,,\n"))) == 1


@pytest.mark.parametrize(("delimiter", "key"), [(";", '";"'), ("\t", '"\\t"'), ("|", '"|"')])
def test_another_delimiter_is_recognised_and_told_and_read_when_named(tmp_path, delimiter, key):
    path = write(tmp_path, f"id{delimiter}age\na{delimiter}1,5\n".encode())
    assert f"data.source.delimiter: {key}" in refusal(path)
    assert read(path, delimiter=delimiter).age.tolist() == ["1,5"]


@pytest.mark.parametrize(("row", "cells"), [("b", 1), ("b,2,3", 3)])
def test_a_ragged_row_is_told_by_its_number_and_not_by_its_text(tmp_path, row, cells):
    content = "id,age\na,1\n" + row.replace("b", SECRET) + "\nc,3\n"
    assert f"row 3 (the header is row 1) has {cells} cells" in refusal(write(tmp_path, content.encode()))


def test_an_unclosed_quotation_mark_is_refused(tmp_path):
    assert "never closed" in refusal(write(tmp_path, f'id,age\na,"{SECRET}\nb,2\n'.encode()))
    assert "quotation mark" in refusal(write(tmp_path, b'id,"age\na,1\n'))


def test_nul_bytes_are_refused_with_their_place(tmp_path):
    assert "NUL byte at byte 9" in refusal(write(tmp_path, b"id,age\na,\x00\n"))


def test_a_cell_over_the_limit_is_refused_and_one_at_the_limit_is_read(tmp_path):
    frame = read(write(tmp_path, b"id,age\na," + b"x" * CELL_LIMIT + b"\n"))
    assert frame.age.str.len().tolist() == [CELL_LIMIT]
    assert "longer than 1 MiB" in refusal(write(tmp_path, b"id,age\na," + b"x" * (CELL_LIMIT + 1) + b"\n"))


@pytest.mark.parametrize("quote", [b"", b'"'])
def test_a_cell_of_100_mb_is_refused_in_bounded_memory(tmp_path, quote):
    path = tmp_path / "large.csv"
    with path.open("wb") as stream:
        stream.write(b"id,age\na,1\nb," + quote)
        for _ in range(100):
            stream.write(b"x" * 1_000_000)
        stream.write(quote + b"\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "longer than 4 MiB" in refusal(str(path))
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 64


def test_a_member_of_an_archive_is_read_and_a_missing_one_lists_what_there_is(tmp_path):
    path = tmp_path / "records.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/a.csv", "id,age\na,1\n")
    assert read(str(path), member="folder/a.csv").age.tolist() == ["1"]
    assert read(str(path)).age.tolist() == ["1"]
    assert "folder/a.csv" in refusal(str(path), member="b.csv")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("b.csv", "id,age\nb,2\n")
    assert "name one as data.source.member" in refusal(str(path))
    assert "no zip archive" in refusal(write(tmp_path, b"id,age\na,1\n"), member="a.csv")


def test_control_characters_in_the_names_of_an_archive_are_escaped(tmp_path):
    path = tmp_path / "rec\x1b[2Jords.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a\x1b[2J\r\nb.csv", "id\na\n")
        archive.writestr("c\x9b.csv", "id,age\n")
    for member in (None, "x\x1b]0;y\x07", "a\x1b[2J\r\nb.csv", "c\x9b.csv"):
        said = refusal(str(path), member=member)
        assert said.isprintable()
        assert r"rec\x1b[2Jords.zip" in said
    assert r"'a\x1b[2J\r\nb.csv', 'c\x9b.csv'" in refusal(str(path))
    plain = write(tmp_path, b"id\na\n", "plain\x1b.csv")
    assert refusal(plain).isprintable()
    assert refusal(plain, member="x\x1b").isprintable()
    assert refusal(str(tmp_path / "none\x1b")).isprintable()


def test_a_damaged_archive_is_refused(tmp_path):
    path = tmp_path / "records.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", "id,age\n" + "a,1\n" * 10_000)
    content = bytearray(path.read_bytes())
    content[60:90] = b"\xff" * 30
    assert "cannot be read" in refusal(write(tmp_path, bytes(content), "damaged.zip"))


def test_the_header_is_read_without_the_rows(tmp_path):
    assert read_header(path=write(tmp_path, b"id,age\n\xff\xff\xff")) == ["id", "age"]


pieces = st.sampled_from(
    [b"id", b"age", b",", b",", b"\n", b"\n", b'"', b"\r", b"x", b"1", b"\xc3\xbc", b"\xfc", b"\0", b" "]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces, max_size=25).map(b"".join), st.sampled_from([b"", b"id,age\n"]))
def test_any_bytes_are_read_as_text_or_refused_as_data(tmp_path, content, header):
    path = write(tmp_path, header + content)
    try:
        frame = read(path)
    except DataError:
        return
    assert len(frame) > 0
    assert {str(dtype) for dtype in frame.dtypes} == {"str"}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6), st.sampled_from([",", ";", "\t"]))
def test_what_a_csv_writer_wrote_is_read_back(tmp_path, rows, delimiter):
    path = tmp_path / "written.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([("id", "age"), *rows])
    frame = read(str(path), missing=(), delimiter=delimiter)
    assert list(frame.itertuples(index=False, name=None)) == rows


def test_unicode_names_and_cells_are_read(tmp_path):
    path = write(tmp_path, "größe,名前\n1,患者\n".encode())
    assert read(path, columns=("名前", "größe"))["名前"].tolist() == ["患者"]
