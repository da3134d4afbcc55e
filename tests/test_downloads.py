"""A download is verified before it gets its name, leaves nothing when it fails, and stays on the public network."""

import hashlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from sphereface.downloads import MOST_ATTEMPTS, PUBLIC, DownloadFailed, Network, download, is_public
from sphereface.errors import JobFailed, UserError

CONTENT = bytes(range(256)) * 1200  # 307,200 bytes
SHA256 = hashlib.sha256(CONTENT).hexdigest()
CERTIFICATE = """
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = localhost
[extensions]
basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyCertSign
subjectKeyIdentifier = hash
subjectAltName = DNS:localhost, DNS:models.example, IP:127.0.0.1
"""


class Site(ThreadingHTTPServer):
    """An HTTPS server on this machine that records requests, and answers by a function of the handler."""

    def __init__(self, context):
        super().__init__(("127.0.0.1", 0), Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.requests = []  # headers, and the path under ":path"
        self.answer = whole
        self.finished = threading.Semaphore(0)  # counts answers
        self.url = f"https://127.0.0.1:{self.server_port}/model.onnx"

    def handle_error(self, *_):
        """Say nothing: many of the clients hang up."""

    @property
    def ranges(self):
        return [headers.get("range") for headers in self.requests]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(headers | {":path": self.path})
        try:
            self.server.answer(self)
        finally:
            self.server.finished.release()

    def log_message(self, *_):
        """Say nothing."""

    def head(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    @property
    def start(self):
        return int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if "Range" in self.headers else 0


def whole(handler):
    handler.head(200, Content_Length=len(CONTENT))
    handler.wfile.write(CONTENT)


def cut(*ends, content=CONTENT, etag='"1"'):
    """Answers with ranges; the body of the n-th answer ends at the n-th place of the file, later ones at its end."""
    left = list(ends)

    def answer(handler):
        start, end = handler.start, left.pop(0) if left else len(content)
        headers = {"Content_Length": len(content) - start, "ETag": etag}
        if start:
            headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.head(206 if start else 200, **headers)
        handler.wfile.write(content[start:end])

    return answer


def to(location):
    return lambda handler: handler.head(302, Location=location, Content_Length=0)


def in_turn(*answers):
    left = list(answers)
    return lambda handler: left.pop(0)(handler)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "config").write_text(CERTIFICATE)
    subprocess.run(
        ["openssl", "req", "-x509", "-config", "config", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-keyout", "key.pem", "-out", "certificate.pem"],
        check=True, cwd=folder, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def running(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    with Site(context) as site:
        threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
        yield site
        site.shutdown()


@pytest.fixture
def site(running):
    running.requests, running.answer, running.finished = [], whole, threading.Semaphore(0)
    return running


@pytest.fixture
def network(certificate):
    """A network that trusts the site alone, and allows the address of this machine."""
    context = partial(ssl.create_default_context, cafile=certificate / "certificate.pem")
    return Network(allows=lambda address: address == "127.0.0.1", context=context, pause=0, timeout=5)


@pytest.fixture
def first_hop(site, network):
    """A network with the real rule for addresses from the first request on."""
    return Network(lambda address: not site.requests or is_public(address), network.context, 0, 5)


@pytest.fixture
def victim():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def received(listener):
    """The first bytes of each connection that was made to a listener."""
    found = []
    try:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(2)
                found.append(connection.recv(1000))
    except BlockingIOError:
        return found


@pytest.fixture
def target(tmp_path):
    return tmp_path / "models" / "model.onnx"


@pytest.fixture(params=["no older file", "an older file"])
def older(request, target):
    """What the folder has before, and must have after, a failed download."""
    target.parent.mkdir()
    if request.param == "an older file":
        target.write_bytes(b"older")
    return files(target.parent)


def files(folder):
    return {path.name: path.is_file() and path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


def refusal(url, target, error=DownloadFailed, **options):
    """The text of the error of a download; it is one printable line, and nothing is kept."""
    before = files(target.parent)
    with pytest.raises(error) as caught:
        download(url, target, **{"sha256": SHA256, **options})
    assert str(caught.value).isprintable()
    assert files(target.parent) == before
    return str(caught.value)


def test_a_file_is_downloaded_whole(site, network, target):
    assert download(site.url + "?part=1", target, sha256=SHA256.upper(), network=network) == target
    assert files(target.parent) == {"model.onnx": CONTENT}
    (request,) = site.requests
    assert (request[":path"], request["accept-encoding"]) == ("/model.onnx?part=1", "identity")
    assert request["host"] == f"127.0.0.1:{site.server_port}"
    assert "range" not in request


def test_a_new_file_has_the_mode_of_any_new_file(site, network, target):
    download(site.url, target, sha256=SHA256, network=network)
    (target.parent / "other").touch()
    assert target.stat().st_mode == (target.parent / "other").stat().st_mode


def test_a_good_file_that_is_there_is_returned_without_a_request(site, network, target):
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    assert download(site.url, target, sha256=SHA256, network=network) == target
    assert site.requests == []


def test_another_file_that_is_there_is_replaced(site, network, target):
    target.parent.mkdir()
    target.write_bytes(b"older")
    download(site.url, target, sha256=SHA256, network=network)
    assert files(target.parent) == {"model.onnx": CONTENT}


def test_a_file_with_another_sha256_is_not_kept(site, network, target, older):
    said = refusal(site.url, target, sha256="0" * 64, network=network)
    assert SHA256 in said
    assert f"wanted {'0' * 64}" in said
    assert "307,200 bytes" in said
    assert files(target.parent) == older


def test_a_body_that_is_cut_off_is_continued(site, network, target):
    site.answer = cut(100_000, 200_000)
    download(site.url, target, sha256=SHA256, network=network)
    assert site.ranges == [None, "bytes=100000-", "bytes=200000-"]
    assert [headers.get("if-range") for headers in site.requests] == [None, '"1"', '"1"']
    assert files(target.parent) == {"model.onnx": CONTENT}


def test_each_attempt_with_new_bytes_allows_more_attempts(site, network, target):
    site.answer = cut(*range(10_000, 300_000, 20_000))  # 15 cuts
    download(site.url, target, sha256=SHA256, network=network)
    assert len(site.requests) == 16


def test_a_weak_etag_is_not_a_condition(site, network, target):
    site.answer = cut(100_000, etag='W/"1"')
    download(site.url, target, sha256=SHA256, network=network)
    assert site.ranges == [None, "bytes=100000-"]
    assert "if-range" not in site.requests[1]


def test_a_chunked_body_that_is_cut_off_is_continued(site, network, target):
    def chunked(handler):
        handler.head(200, Transfer_Encoding="chunked")
        handler.wfile.write(b"186a0\r\n" + CONTENT[:100_000] + b"\r\n")

    site.answer = in_turn(chunked, cut())
    download(site.url, target, sha256=SHA256, network=network)
    assert site.ranges == [None, "bytes=100000-"]


def test_a_server_that_stalls_is_asked_again(site, network, target):
    def stalls(handler):
        handler.head(200, Content_Length=len(CONTENT))
        handler.wfile.write(CONTENT[:100_000])
        handler.wfile.flush()
        handler.rfile.read(1)  # until the client hangs up

    site.answer = in_turn(stalls, cut())
    download(site.url, target, sha256=SHA256, network=Network(network.allows, network.context, 0, timeout=0.5))
    assert site.ranges == [None, "bytes=100000-"]


def test_a_body_that_always_ends_at_the_same_byte_is_an_error(site, network, target, older):
    site.answer = cut(*[100_000] * 20)
    said = refusal(site.url, target, network=network)
    assert "cut off at byte 100,000 of 307,200" in said
    assert len(site.requests) == 1 + MOST_ATTEMPTS


@pytest.mark.parametrize("ends", [[100_000], [100_000, 50_000]], ids=["same end", "two ends"])
def test_a_server_that_always_starts_again_and_breaks_is_an_error(site, network, target, ends):
    def starts(handler):
        count = len(site.requests)
        assert count < 20
        handler.head(200, Content_Length=len(CONTENT), ETag=f'"{count}"')
        handler.wfile.write(CONTENT[: ends[(count - 1) % len(ends)]])

    site.answer = starts
    assert "nothing new in 5 attempts" in refusal(site.url, target, network=network)
    assert len(site.requests) == 1 + MOST_ATTEMPTS


def test_attempts_wait_for_each_other_longer_and_longer(network, target, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    said = refusal(f"https://127.0.0.1:{port}/", target, network=Network(network.allows, network.context, pause=0.5))
    assert "refused" in said
    assert "check the network" in said
    assert waits == [0.5, 1.0, 1.5, 2.0]


def test_a_server_that_ignores_ranges_is_read_from_the_first_byte(site, network, target):
    site.answer = in_turn(cut(100_000), whole)
    download(site.url, target, sha256=SHA256, network=network)
    assert site.ranges == [None, "bytes=100000-"]
    assert files(target.parent) == {"model.onnx": CONTENT}


def other(etag='"2"', total=307_200, start=100_000):
    """A wrong continuation of a file."""

    def answer(handler):
        span = f"bytes {start}-{len(CONTENT) - 1}/{total}"
        handler.head(206, Content_Length=len(CONTENT) - 100_000, ETag=etag, Content_Range=span)
        handler.wfile.write(b"x" * (len(CONTENT) - 100_000))

    return answer


@pytest.mark.parametrize(
    "wrong",
    [
        other(),
        other('"1"', total=len(CONTENT) + 1),
        other('"1"', start=99_999),
        other('"1"', total="x"),
        lambda handler: handler.head(206, Content_Length=0),
        lambda handler: handler.head(416, Content_Length=0),
        lambda handler: handler.head(416, Content_Length=0, Content_Range="bytes 100000-307199/307200"),
    ],
    ids=["etag", "total", "start", "garbled", "no range", "416", "416 with a range"],
)
def test_a_file_that_changed_is_read_from_the_first_byte(site, network, target, wrong):
    site.answer = in_turn(cut(100_000), wrong, whole)
    download(site.url, target, sha256=SHA256, network=network)
    assert site.ranges == [None, "bytes=100000-", None]
    assert files(target.parent) == {"model.onnx": CONTENT}


def test_a_declared_size_above_the_limit_is_refused_unread(site, network, target, older):
    sent, reports = [], []

    def endless(handler):
        handler.head(200, Content_Length=10_000_000_000)
        for _ in range(1000):
            handler.wfile.write(bytes(100_000))
            sent.append(100_000)

    site.answer = endless
    said = refusal(site.url, target, network=network, begin=lambda _: lambda *report: reports.append(report))
    assert "10,000,000,000 bytes, wanted at most 2,000,000,000" in said
    assert site.finished.acquire(timeout=5)
    assert sum(sent) < 20_000_000  # what the buffers of two sockets hold
    assert reports == []


def test_an_endless_body_is_stopped_at_the_limit(site, network, target, older):
    sent = []

    def endless(handler):
        handler.head(200, Transfer_Encoding="chunked")
        for _ in range(1000):
            handler.wfile.write(b"186a0\r\n" + bytes(100_000) + b"\r\n")
            sent.append(100_000)

    site.answer = endless
    assert "more than 150,000 bytes" in refusal(site.url, target, network=network, largest=150_000)
    assert site.finished.acquire(timeout=5)
    assert sum(sent) < 20_000_000
    assert len(site.requests) == 1


def test_a_continuation_above_the_limit_is_refused(site, network, target):
    def chunked(handler):
        handler.head(200, Transfer_Encoding="chunked")
        handler.wfile.write(b"64\r\n" + CONTENT[:100] + b"\r\n")

    site.answer = in_turn(chunked, cut())
    assert "307,200 bytes" in refusal(site.url, target, network=network, largest=300_000)


def test_a_file_as_large_as_the_limit_is_fine(site, network, target):
    download(site.url, target, sha256=SHA256, network=network, largest=len(CONTENT))
    assert files(target.parent) == {"model.onnx": CONTENT}


def test_an_encoded_body_is_refused(site, network, target):
    site.answer = lambda handler: handler.head(200, Content_Encoding="gzip", Content_Length=5)
    assert "encoded as gzip" in refusal(site.url, target, network=network)


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "HTTP 404 Not Found"), (403, "HTTP 403 Forbidden"), (503, "HTTP 503"), (206, "HTTP 206"), (799, "HTTP 799")],
)
def test_another_status_is_named(site, network, target, status, said):
    site.answer = lambda handler: handler.head(status, Content_Length=0)
    refused = refusal(site.url + "?token=secret", target, network=network)
    assert said in refused
    assert "secret" not in refused
    assert len(site.requests) == 1


def test_redirects_are_followed_relative_ones_too(site, network, target):
    site.answer = in_turn(to("/a/b"), to("c?d=1"), to(f"https://localhost:{site.server_port}/e"), whole)
    download(site.url, target, sha256=SHA256, network=with_localhost(network))
    assert [request[":path"] for request in site.requests] == ["/model.onnx", "/a/b", "/a/c?d=1", "/e"]


def with_localhost(network):
    """A network that allows all of this machine's own addresses: localhost may be ::1 first."""
    return Network(lambda address: address in ("127.0.0.1", "::1"), network.context, 0, 5)


def test_a_redirect_loop_ends(site, network, target):
    site.answer = to("/model.onnx")
    assert "more than 5 redirects" in refusal(site.url, target, network=network)
    assert len(site.requests) == 6


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("http://127.0.0.1/model.onnx", "wanted an https://"),
        ("file:///etc/passwd", "wanted an https://"),
        ("https://[::1", "wanted an https://"),
        ("https://user:secret@127.0.0.1/", "user name"),
        ("http://127.0.0.1/m?token=secret", "wanted an https://"),
        ("http://" + "a" * 10_000, "aaa: wanted an https://"),
        ("/a b", "printable"),
        ("/a\r\n \x1b[31mb", "printable"),
        ("", "without a Location"),
    ],
)
def test_a_redirect_to_another_kind_of_url_is_refused(site, network, target, location, said):
    site.answer = to(location)
    refused = refusal(site.url, target, network=network)
    assert said in refused
    assert "secret" not in refused
    assert len(refused) < 400
    assert len(site.requests) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"])
def test_a_redirect_to_this_machine_is_refused_before_a_connection(site, first_hop, victim, target, host):
    site.answer = to(f"https://{host}:{victim.getsockname()[1]}/")
    assert "wanted a public address" in refusal(site.url, target, network=first_hop)
    assert len(site.requests) == 1
    assert received(victim) == []


@pytest.mark.parametrize(
    "host", ["[::1]", "169.254.169.254", "10.0.0.1", "[64:ff9b::a00:1]", "[2002:7f00:1::]", "[fe80::1]", "0.0.0.0"]
)
def test_a_redirect_to_a_private_address_is_refused_at_once(site, first_hop, target, host):
    site.answer = to(f"https://{host}/latest/meta-data")
    before = time.monotonic()
    assert "wanted a public address" in refusal(site.url, target, network=first_hop)
    assert time.monotonic() - before < 2
    assert len(site.requests) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_default_network_makes_no_connection_to_this_machine(victim, target, host):
    said = refusal(f"https://{host}:{victim.getsockname()[1]}/", target)
    assert "wanted a public address" in said
    assert received(victim) == []


def test_the_address_that_is_connected_to_counts_not_the_one_that_was_looked_up(victim, target, monkeypatch):
    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, _: connect(self, victim.getsockname()))
    assert "is at 127.0.0.1" in refusal("https://8.8.8.8/model.onnx", target)
    assert received(victim) == [b""]  # not one byte, TLS included


def test_a_name_is_looked_up_once_for_a_connection(site, network, target, monkeypatch):
    lookup, names = socket.getaddrinfo, []

    def rebinding(host, port, *more, **options):
        if host == "models.example":
            names.append(host)
            host = "127.0.0.1" if len(names) == 1 else "10.0.0.1"
        return lookup(host, port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    download(f"https://models.example:{site.server_port}/", target, sha256=SHA256, network=network)
    assert names == ["models.example"]


def test_proxies_of_the_environment_are_not_used(site, network, victim, target, monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{victim.getsockname()[1]}")
    download(site.url, target, sha256=SHA256, network=network)
    assert received(victim) == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "169.254.169.254", "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1",
        "2001:db8::1", "4000::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
        "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::7f00:1", "2002:7f00:1::",
        "2002:a9fe:a9fe::1", "2001:0:7f00:1::1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_of_the_public_network_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
     "2002:808:808::1"],
)  # fmt: skip
def test_an_address_of_the_public_network_is_public(address):
    assert is_public(address)


def test_the_default_network_is_public_and_checks_certificates():
    context = PUBLIC.context()
    assert PUBLIC.allows is is_public
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (PUBLIC.timeout, PUBLIC.pause) == (30, 1)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/m?token=secret", "ftp://127.0.0.1/m", "model.onnx", "", "https://", "https:///m",
     "https://a:b/", "https://[/",
     "https://a:0/", "https://a:70000/", "https://a..b/", "https://a/b c", "https://ä/", "https://a/\n",
     "https://user:secret@127.0.0.1/m", "https://user@127.0.0.1/m", "https://@127.0.0.1/m"],
)  # fmt: skip
def test_another_url_is_an_error_of_the_user(network, target, url):
    assert "secret" not in refusal(url, target, UserError, network=network)
    assert not target.parent.exists()


@pytest.mark.parametrize("sha256", ["", "0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n", " " + "0" * 63])
def test_a_bad_sha256_is_an_error_of_the_user(site, network, target, sha256):
    assert "64 hexadecimal digits" in refusal(site.url, target, UserError, sha256=sha256, network=network)
    assert site.requests == []


def test_a_folder_as_target_is_refused_before_the_download(site, network, tmp_path):
    assert "is a folder" in refusal(site.url, tmp_path, UserError, network=network)
    assert site.requests == []


def test_a_place_that_cannot_be_written_is_an_error_of_ours(site, network, tmp_path):
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refusal(site.url, tmp_path / "file" / "model.onnx", network=network)
    assert site.requests == []


def test_a_full_disk_is_an_error_of_ours_and_not_tried_again(site, network, target, older, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sphereface.downloads.os.fsync", full)
    said = refusal(site.url, target, network=network)
    assert f"{target}: No space left on device" in said
    assert len(site.requests) == 1


def test_an_untrusted_certificate_is_refused_at_once(site, network, target):
    said = refusal(site.url, target, network=Network(network.allows, pause=0))
    assert "certificate is not trusted (self" in said
    assert site.requests == []


def test_the_certificate_of_another_host_is_refused(site, network, target, monkeypatch):
    lookup = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **options: lookup("127.0.0.1", *more, **options))
    said = refusal(f"https://other.example:{site.server_port}/", target, network=network)
    assert "other.example" in said.partition("not trusted")[2]
    assert site.requests == []


def test_a_server_that_speaks_no_tls_is_an_error(network, target):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as plain:
        threading.Thread(target=plain.serve_forever, args=(0.02,), daemon=True).start()
        said = refusal(f"https://127.0.0.1:{plain.server_port}/", target, network=network)
        plain.shutdown()
    assert "nothing new in 5 attempts" in said


def test_an_interruption_leaves_nothing_behind(site, network, target, older):
    def interrupt(_done, _total):
        assert any(name.endswith(".part") for name in files(target.parent))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(site.url, target, sha256=SHA256, network=network, begin=lambda _: interrupt)
    assert files(target.parent) == older


def test_progress_is_reported_in_bytes_and_not_too_often(site, network, target):
    steps, reports = [], []

    def begin(step):
        steps.append(step)
        return lambda done, total: reports.append((done, total, time.monotonic()))

    download(site.url, target, sha256=SHA256, network=network, begin=begin)
    assert steps == ["downloading model.onnx"]
    assert reports[-1][:2] == (len(CONTENT), len(CONTENT))
    assert reports[0][0] < len(CONTENT)
    times = [at for *_, at in reports[:-1]]  # the last report is not held back
    assert all(later - earlier >= 0.09 for earlier, later in pairwise(times))


def test_an_unknown_total_is_reported_as_0_until_the_end(site, network, target):
    def no_length(handler):
        handler.head(200)
        handler.wfile.write(CONTENT)

    site.answer, reports = no_length, []
    begin = lambda _: lambda *report: reports.append(report)  # noqa: E731
    download(site.url, target, sha256=SHA256, network=network, begin=begin)
    assert reports[0][1] == 0
    assert reports[-1] == (len(CONTENT), len(CONTENT))


def test_a_failed_download_is_a_failed_job():
    assert issubclass(DownloadFailed, JobFailed)


def test_importing_downloads_imports_no_http_and_no_tls():
    heavy = {"http.client", "ssl", "torch", "numpy"}
    code = f"import sys, sphereface.downloads; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "[]", ran.stderr
