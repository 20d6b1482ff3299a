"""An S3 server: moto's, behind a check of signatures, which moto does not make of signed URLs.

Arguments: access key, secret key, port. Requests that carry no signature are the test's own.
"""

import hashlib
import hmac
import sys
from urllib.parse import parse_qsl, quote

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

ACCESS, SECRET, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
inner = DomainDispatcherApplication(create_backend_app)


def refused(environ):
    """The code of the error, or None."""
    path, _, query = environ["RAW_URI"].partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    fields = dict(pairs)
    if "X-Amz-Signature" not in fields:
        return None
    access, day, region, service, _ = fields["X-Amz-Credential"].split("/")
    if access != ACCESS:
        return "InvalidAccessKeyId"
    signed = fields["X-Amz-SignedHeaders"].split(";")
    sent = {name[5:].lower().replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    sent["content-type"] = environ.get("CONTENT_TYPE", "")
    if any(name.startswith("x-amz-") and name not in signed for name in sent):
        return "AccessDenied"
    encode = lambda text: quote(text, safe="-_.~")
    canonical = sorted((encode(name), encode(value)) for name, value in pairs if name != "X-Amz-Signature")
    request = "\n".join([
        environ["REQUEST_METHOD"],
        path,
        "&".join(f"{name}={value}" for name, value in canonical),
        *(f"{name}:{sent.get(name, '').strip()}" for name in signed),
        "",
        ";".join(signed),
        "UNSIGNED-PAYLOAD",
    ])
    scope = f"{day}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{fields['X-Amz-Date']}\n{scope}\n{digest}"
    key = ("AWS4" + SECRET).encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return None if hmac.compare_digest(signature, fields["X-Amz-Signature"]) else "SignatureDoesNotMatch"


def application(environ, start):
    code = refused(environ)
    if code is None:
        return inner(environ, start)
    start("403 Forbidden", [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()]


make_server("127.0.0.1", PORT, application, threaded=True).serve_forever()
