from sphereface.hashes import sha256_of

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # the example of FIPS 180-2


def test_bytes_text_and_a_file_have_the_published_hash(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(b"abc") == sha256_of("abc") == sha256_of(tmp_path / "abc") == ABC
