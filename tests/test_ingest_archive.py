"""Archives from strangers: what goes in, and the code of what does not."""

import io
import stat
import struct
import zipfile
import zlib

import pytest

from backend.domain.errors import (
    FileTooLarge,
    PlatformError,
    UnreadableFile,
    UnsafeMember,
    UnsafePath,
    UnsupportedFile,
)
from backend.services import archive
from backend.services.archive import is_archive, is_litter, open_archive
from tests.ingest_files import zipped

GENEROUS = 10**9


def unpack(data: bytes, *, max_bytes: int = GENEROUS, max_members: int = 100) -> dict[str, bytes | str]:
    """Member names to bytes, or to the code of their refusal."""
    unpacked: dict[str, bytes | str] = {}
    with open_archive(io.BytesIO(data), max_members=max_members) as opened:
        for member in opened.members():
            got = io.BytesIO()
            try:
                opened.unpack(member, got.write, max_bytes=max_bytes)
                unpacked[member.name] = got.getvalue()
            except PlatformError as error:
                unpacked[member.name] = error.code
    return unpacked


@pytest.mark.parametrize(
    "name", ["../../evil.dcm", "/abs.dcm", r"C:\x.dcm", "C:x.dcm", r"a\b.dcm", r"..\x", "a/../../b", r"\\host\x", ".."]
)
def test_c62_a_member_that_names_a_place_outside_is_refused_and_the_good_one_goes_in(name: str) -> None:
    assert unpack(zipped({name: b"bad", "good.dcm": b"good"})) == {name: UnsafePath.code, "good.dcm": b"good"}


@pytest.mark.parametrize("name", ["a..b/c.dcm", "...dcm", "a/..b", "uploads-evil/x"])
def test_c62_a_name_that_only_looks_like_a_climb_is_a_name(name: str) -> None:
    assert unpack(zipped({name: b"good"})) == {name: b"good"}


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_c62_links_and_devices_are_refused(kind: int) -> None:
    def special(info: zipfile.ZipInfo) -> None:
        info.create_system = 3
        info.external_attr = (kind | 0o777) << 16

    assert unpack(zipped({"etc": b"/etc/passwd"}, special)) == {"etc": UnsafeMember.code}


def test_an_encrypted_member_is_refused() -> None:
    data = zipped({"a.dcm": b"secret"}).replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01")
    data = data.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")
    assert unpack(data) == {"a.dcm": UnsafeMember.code}


def test_c63_an_archive_in_an_archive_is_refused() -> None:
    assert unpack(zipped({"inner.zip": zipped({"a": b"a"}), "b": b"b"})) == {"inner.zip": UnsafeMember.code, "b": b"b"}


def test_c63_bytes_are_counted_as_they_come_out() -> None:
    assert unpack(zipped({"big": bytes(1001), "fits": bytes(1000)}), max_bytes=1000) == {
        "big": FileTooLarge.code,
        "fits": bytes(1000),
    }


def test_c63_a_declared_size_is_not_trusted() -> None:
    lying = zipped({"big": bytes(100_000)}).replace(struct.pack("<I", 100_000), struct.pack("<I", 10))
    assert unpack(lying, max_bytes=1000) == {"big": UnreadableFile.code}  # ten bytes have another checksum


def test_c63_far_more_than_went_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM_BYTES", 2**20)
    assert unpack(zipped({"zeros": bytes(3 * 2**20)})) == {"zeros": FileTooLarge.code}


def test_c63_too_many_entries_are_refused_before_they_are_listed() -> None:
    with pytest.raises(FileTooLarge, match="more than 20 members"):
        unpack(zipped({f"{n}": b"" for n in range(21)}), max_members=20)


def test_c63_a_list_of_members_that_says_it_is_huge_is_not_read() -> None:
    data = bytearray(zipped({"a": b"a"}))
    end = data.rindex(b"PK\x05\x06")
    data[end + 12 : end + 16] = struct.pack("<I", 2**31)
    with pytest.raises((UnreadableFile, FileTooLarge)):
        unpack(bytes(data))


def test_a_member_whose_bytes_are_damaged_is_refused_and_the_next_goes_in() -> None:
    data = bytearray(zipped({"a": bytes(range(256)) * 8, "b": b"b"}))
    data[60:70] = b"\xff" * 10
    assert unpack(bytes(data)) == {"a": UnreadableFile.code, "b": b"b"}


def test_a_method_that_we_do_not_unpack_is_refused() -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("a", b"a" * 100)
    assert unpack(written.getvalue()) == {"a": UnsupportedFile.code}


def test_a_zip_that_is_cut_off_is_unreadable() -> None:
    with pytest.raises(UnreadableFile):
        unpack(zipped({"a": zlib.compress(bytes(1000))})[:-10])


def test_an_office_document_is_no_archive_of_images() -> None:
    with pytest.raises(UnsupportedFile):
        unpack(zipped({"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"}))


def test_an_archive_is_told_by_its_first_bytes() -> None:
    assert is_archive(zipped({"a": b"a"})[:132])
    assert is_archive(zipped({})[:132])
    assert not is_archive(b"\x1f\x8b\x08" + bytes(200))  # .nii.gz
    assert not is_archive(b"PK\x03\x04" + bytes(124) + b"DICM")  # a preamble may hold anything: PS3.10 7.1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__MACOSX/a/._IM1", True),
        ("a/._IM1", True),
        ("a/.DS_Store", True),
        ("THUMBS.DB", True),
        ("autorun.inf", True),
        ("a/IM1", False),
        ("__MACOSX", False),
        ("a/_.dcm", False),
    ],
)
def test_c23_what_operating_systems_leave_behind_is_litter(name: str, expected: bool) -> None:
    assert is_litter(name) is expected
