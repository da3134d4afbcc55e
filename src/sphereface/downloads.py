"""Download of a file over https, from public addresses only; the file gets its name once its SHA-256 is right."""

import hashlib
import ipaddress
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import SplitResult, urljoin, urlsplit

from sphereface.errors import JobFailed, SphereFaceError, UserError
from sphereface.hashes import require_sha256, sha256_of
from sphereface.progress import Begin, Progress, unseen

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPResponse

LARGEST = 2_000_000_000  # bytes
CHUNK = 1 << 16  # bytes per read, at most
MOST_REDIRECTS, MOST_ATTEMPTS = 5, 5
BETWEEN_REPORTS = 0.1  # seconds
REDIRECTS = (301, 302, 303, 307, 308)

UNICAST = ipaddress.IPv6Network("2000::/3")  # all of IPv6 that is assigned for the public network
TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64, RFC 6052: the last 32 bits are an IPv4 address


class DownloadFailed(JobFailed):
    """A file that could not be downloaded; nothing of it is kept, and an older file at its path is unchanged."""


class _Broken(Exception):
    """A connection or an answer that failed in a way that another attempt may mend."""


def is_public(address: str) -> bool:
    """True for an address of the public network; one that embeds an IPv4 address is judged by that.

    >>> [is_public(address) for address in ("8.8.8.8", "10.0.0.1", "::ffff:127.0.0.1")]
    [True, False, False]
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in TRANSLATED:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is None and ip not in UNICAST:
            return False
        ip = inner or ip
    return ip.is_global and not ip.is_multicast  # a multicast address counts as global


def trusted() -> "ssl.SSLContext":
    """A context that checks certificates and host names against the roots of this machine."""
    import ssl

    return ssl.create_default_context()


@dataclass(frozen=True)
class Network:
    """What only tests change: the addresses that may be connected to, the trusted roots, and times in seconds.

    The second attempt waits for one `pause`, the third for two, and so on.
    """

    allows: Callable[[str], bool] = is_public
    context: Callable[[], "ssl.SSLContext"] = trusted
    pause: float = 1.0
    timeout: float = 30.0  # of connecting, and of each read


PUBLIC = Network()


def download(
    url: str,
    target: Path,
    *,
    sha256: str,
    largest: int = LARGEST,
    begin: Begin = unseen,
    network: Network = PUBLIC,
) -> Path:
    """Download a file of at most `largest` bytes to `target`; a file with this SHA-256 that is there already stays.

    A download that is cut off continues where it ended, until five attempts in a row bring no new bytes.
    """
    wanted = require_sha256(sha256)
    _parts(url, UserError)
    if target.is_dir():
        raise UserError(f"{target} is a folder; give the path of the file to write")
    try:
        if target.is_file() and sha256_of(target) == wanted:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            with path.open("xb") as file:
                part = _Part(file, largest)
                _fill(part, url, begin(f"downloading {target.name}"), network)
                if part.hash.hexdigest() != wanted:
                    raise DownloadFailed(
                        f"{_shown(url)}: {part.done:,} bytes with SHA-256 {part.hash.hexdigest()}, wanted {wanted}; "
                        "download again, and if it stays so, the file at this URL is another one"
                    )
                file.flush()
                os.fsync(file.fileno())
            path.replace(target)
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:  # those of the network are handled where they arise
        raise DownloadFailed(f"{target}: {error.strerror or error}; make room or choose another folder") from error
    return target


class _Part:
    """The first bytes of a file, and what the server said about the whole.

    `furthest` survives a reset: a server that starts again each time brings no new bytes up to there.
    """

    def __init__(self, file: BinaryIO, largest: int) -> None:
        self.file, self.largest, self.furthest = file, largest, 0
        self.reset()

    def reset(self, total: int | None = None, etag: str = "") -> None:
        """Start again from the first byte."""
        self.file.seek(0)
        self.file.truncate()
        self.hash, self.done, self.total, self.etag = hashlib.sha256(), 0, total, etag

    def append(self, data: bytes) -> None:
        """Write bytes after those that are there."""
        self.file.write(data)
        self.hash.update(data)
        self.done += len(data)
        self.furthest = max(self.furthest, self.done)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request for the rest."""
        headers = {"User-Agent": "sphereface", "Accept-Encoding": "identity", "Connection": "close"}
        if self.done:
            headers["Range"] = f"bytes={self.done}-"
            if self.etag:
                headers["If-Range"] = self.etag
        return headers


def _fill(part: _Part, url: str, progress: Progress, network: Network) -> None:
    """Download all of a file, in as many attempts as bring it further."""
    context = network.context()
    report = _throttled(progress)
    most = failures = 0
    while True:
        try:
            _attempt(part, url, report, context, network)
        except _Broken as error:
            failures = 0 if part.furthest > most else failures + 1
            most = part.furthest
            if failures == MOST_ATTEMPTS:
                raise DownloadFailed(
                    f"{_shown(url)}: {error}; {most:,} bytes came, and then nothing new in {failures} attempts; "
                    "check the network and download again"
                ) from error
            time.sleep(network.pause * max(failures, 1))
        else:
            progress(part.done, part.total or part.done)
            return


def _throttled(progress: Progress) -> Progress:
    """Progress with a pause between two reports."""
    last = -BETWEEN_REPORTS

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= BETWEEN_REPORTS:
            last = time.monotonic()
            progress(done, total)

    return report


def _attempt(part: _Part, url: str, report: Progress, context: "ssl.SSLContext", network: Network) -> None:
    """Append to a part what one answer brings."""
    with _answer(url, part.headers, context, network) as answer:
        _match(part, answer, _shown(url))
        while True:
            with _breaks(url):  # nothing but the read: an error of the disk is not mended by another attempt
                data = answer.read1(CHUNK)
            if not data:
                break
            if part.done + len(data) > part.largest:
                raise _too_large(_shown(url), f"more than {part.largest:,}", part.largest)
            part.append(data)
            report(part.done, part.total or 0)
    if part.total is not None and part.done < part.total:
        raise _Broken(f"the connection was cut off at byte {part.done:,} of {part.total:,}")


def _match(part: _Part, answer: "HTTPResponse", shown: str) -> None:
    """Prepare a part for the body of an answer: the rest of the same file, or a file from its first byte."""
    from http.client import responses

    encoding = answer.getheader("Content-Encoding", "identity")
    etag = answer.getheader("ETag", "")
    strong = etag if re.fullmatch('"[!-~]*"', etag) else ""
    if answer.status not in (200, 206, 416) or (answer.status != 200 and not part.done):
        name = f"HTTP {answer.status} {responses.get(answer.status, '')}".rstrip()
        advice = "try again later" if answer.status >= 500 or answer.status == 429 else "check the URL"
        raise DownloadFailed(f"{shown}: the server answered {name}, wanted the file; {advice}")
    if answer.status != 416 and encoding.strip().lower() != "identity":
        raise DownloadFailed(f"{shown}: encoded as {_printable(encoding)}, wanted the plain file; use another URL")
    if answer.status == 200:
        part.reset(answer.length, strong)
    else:
        span = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", answer.getheader("Content-Range", ""), re.ASCII)
        total = int(span[2]) if span and span[2] != "*" else part.total
        same = part.total in (None, total) and (not part.etag or etag in ("", part.etag))
        if answer.status == 416 or not span or int(span[1]) != part.done or not same:
            at = part.done
            part.reset()
            raise _Broken(f"the server did not continue the same file at byte {at:,}")
        part.total = total
    if part.total is not None and part.total > part.largest:
        raise _too_large(shown, f"{part.total:,}", part.largest)


def _too_large(shown: str, size: str, largest: int) -> DownloadFailed:
    return DownloadFailed(f"{shown}: {size} bytes, wanted at most {largest:,}; check that the URL is the right file's")


@contextmanager
def _answer(url: str, headers: dict[str, str], context: "ssl.SSLContext", network: Network) -> "Iterator[HTTPResponse]":
    """The answer to a request, behind its redirects."""
    from http.client import HTTPSConnection

    first = url
    for _ in range(1 + MOST_REDIRECTS):
        parts = _parts(url, DownloadFailed)
        host, port = parts.hostname or "", 443 if parts.port is None else parts.port
        with closing(HTTPSConnection(host, port, context=context)) as connection:
            with _breaks(url):
                connection.sock = _connected(host, port, url, context, network)
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
            with answer:
                if answer.status not in REDIRECTS:
                    yield answer
                    return
                url = _next(url, answer.getheader("Location"))
    raise DownloadFailed(f"{_shown(first)}: more than {MOST_REDIRECTS} redirects; give the URL that they lead to")


def _next(url: str, location: str | None) -> str:
    """The URL that a redirect leads to."""
    if not location:
        raise DownloadFailed(f"{_shown(url)}: a redirect without a Location; give the URL that it should lead to")
    try:
        return urljoin(url, location)
    except ValueError:
        return location  # which is refused as what it is


def _connected(host: str, port: int, url: str, context: "ssl.SSLContext", network: Network) -> "ssl.SSLSocket":
    """A TLS connection to the first address of a host that answers."""
    broken = OSError(f"{host} has no address")
    for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = str(place[0])
        _refuse(address, url, network)  # no packet for it, and no wait
        try:
            plain = socket.create_connection((address, port), network.timeout)
        except OSError as error:
            broken = error
            continue
        try:
            _refuse(plain.getpeername()[0], url, network)  # whatever was looked up, this is the other end
            return context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
    raise broken


def _refuse(address: str, url: str, network: Network) -> None:
    if not network.allows(address):
        raise DownloadFailed(
            f"{_shown(url)} is at {address}, wanted a public address; fetch the file by other means and give its path"
        )


@contextmanager
def _breaks(url: str) -> Iterator[None]:
    """Turn errors of the network into `_Broken`, and a bad certificate into a failure: no attempt mends it."""
    import ssl
    from http.client import HTTPException

    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise DownloadFailed(
            f"{_shown(url)}: its certificate is not trusted ({_printable(error.verify_message)}), wanted a valid one; "
            "check the URL, the clock and the root certificates of this machine"
        ) from error
    except (OSError, HTTPException) as error:
        raise _Broken(_printable(str(error) or type(error).__name__)) from error


def _parts(url: str, error: Callable[[str], SphereFaceError]) -> SplitResult:
    """The parts of an https URL; any other URL is an error of the given class."""
    if not re.fullmatch("[!-~]+", url):
        raise error(f"{_shown(url)}: not a URL of printable ASCII characters; write the others as %XX, a host as xn--")
    if "@" in re.split("[/?#]", url.partition("//")[2])[0]:
        raise error(f"{_shown(url)}: a URL with a user name or a password; give one without")
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # as a look-up does
        good = parts.scheme == "https" and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise error(f"{_shown(url)}: wanted an https:// URL with a host; check the URL")
    return parts


def _shown(url: str) -> str:
    """A URL for a message, without what may be secret: its user, and its query, which may be a signature."""
    return _printable(re.sub("//[^/]*@", "//", re.split("[?#]", url)[0]))


def _printable(text: str) -> str:
    """At most 200 characters of a text from outside, on one line."""
    return "".join(each if each.isprintable() else "?" for each in text[:200])
