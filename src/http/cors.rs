//! Cross-origin requests (the Fetch standard; responses as in docs/http.md).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Headers, Method, Request, Response};

/// Methods that pages of other origins may use, unless the mount has its own list.
pub const METHODS: &str = "GET,POST,HEAD,OPTIONS,PUT,DELETE";
/// Methods that do not change anything.
const READ_METHODS: &str = "GET,HEAD,OPTIONS";
/// Header fields that a page of another origin may send.
pub const FIELDS: &str = "accept,origin,x-requested-with,access-control-request-headers,content-type,\
                      access-control-request-method,authorization,proxyauthorization";
/// Used instead of a list of fields. It allows pages to send any field except those that proxies write.
pub const ANY_FIELD: &str = "*";
/// URL schemes of app shells and local files. All pages of such a scheme have the same origin, whoever wrote them.
const SHELLS: [&str; 4] = ["file", "capacitor", "ionic", "tauri"];
/// The lifetime of a preflight response, in seconds.
const MAX_AGE: &str = "1800";
/// Origin of the panel during its development. Its pages may send credentials.
const DEVELOPMENT: &str = "http://localhost:4200";

/// The allowed origins, and the requests that pages of these origins may make.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    /// Host names of this server. Pages of these hosts count as the server's own pages.
    pub names: &'a [String],
    /// The allowed origins.
    pub origins: Origins<'a>,
    /// The value of `Access-Control-Allow-Methods`.
    pub methods: &'a str,
    /// The value of `Access-Control-Allow-Headers`.
    pub fields: &'a str,
    /// The value of `Access-Control-Expose-Headers`.
    pub exposed: Option<&'a str>,
    /// True if caches may store the responses. A cache gives a stored response to pages of other origins too, so even
    /// the response to a request without an origin allows all of them (Fetch, "CORS protocol and HTTP caches").
    pub is_cached: bool,
}

/// The origins whose pages may send requests.
#[derive(Debug, Clone, Copy)]
pub enum Origins<'a> {
    /// For paths of applications: any origin; credentials are allowed only if the request has some.
    Anyone,
    /// For an API of an application that is protected only by client addresses. Every page in a browser at an allowed
    /// address can reach the API, so only these origins are treated as in [`Self::Anyone`]. All others may only read.
    Readers(&'a [String]),
    /// For management paths: only these origins are allowed, with credentials. Other origins get no CORS fields, so
    /// that browsers withhold the response from their pages.
    Named(&'a [String]),
}

/// The verdict on a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer the request with this response; do not pass it on.
    Answer(Box<Response>),
    /// The request is allowed; add these fields to its response.
    Fields(Vec<(&'static str, String)>),
}

/// Judges a request by its origin. Called before any other check of the request.
#[must_use]
pub fn check(request: &Request, policy: Policy<'_>) -> Verdict {
    let Some(origin) = request.header("origin") else {
        return Verdict::Fields(same_for_all(request, policy));
    };
    if !is_origin(origin) || request.headers.count("origin") > 1 {
        return refused();
    }
    if is_own_origin(request, origin, policy.names) {
        return Verdict::Fields(same_for_all(request, policy));
    }
    let is_in = |named: &[String]| named.iter().any(|known| known.eq_ignore_ascii_case(origin));
    let methods = match policy.origins {
        Origins::Named(named) if !is_in(named) => return Verdict::Fields(Vec::new()),
        Origins::Readers(named) if !is_in(named) => READ_METHODS,
        Origins::Anyone | Origins::Named(_) | Origins::Readers(_) => policy.methods,
    };
    let is_named = match policy.origins {
        Origins::Named(named) | Origins::Readers(named) => is_in(named),
        Origins::Anyone => false,
    };
    let is_echoed = matches!(policy.origins, Origins::Named(_));
    let mut fields = origin_fields(request, origin, is_echoed, is_opaque(origin) && !is_named);
    let is_allowed = |method: &str| methods.split(',').any(|known| known == method);
    match request.header("access-control-request-method") {
        Some(method) if request.method == Method::Options => {
            preflight(request, is_allowed(method.trim()), (methods, policy.fields), &fields)
        }
        Some(_) | None if !is_allowed(request.method.as_str()) => refused(),
        Some(_) | None => {
            fields
                .extend(policy.exposed.map(|exposed| ("Access-Control-Expose-Headers", exposed.to_owned())));
            Verdict::Fields(fields)
        }
    }
}

/// Returns the fields of a response that a cache may give to pages of any origin; none if caches do not store it.
fn same_for_all(request: &Request, policy: Policy<'_>) -> Vec<(&'static str, String)> {
    if !policy.is_cached || !matches!(request.method, Method::Get | Method::Head) {
        return Vec::new();
    }
    let exposed = policy.exposed.map(|exposed| ("Access-Control-Expose-Headers", exposed.to_owned()));
    [("Access-Control-Allow-Origin", "*".to_owned())].into_iter().chain(exposed).collect()
}

/// Name of the field with the content security policy of pages. An application may set this policy for all its
/// responses.
pub const CONTENT_SECURITY_POLICY: &str = "Content-Security-Policy";

/// Adds the fields of a verdict or of a path to a response. Browsers enforce every content security policy that a
/// response has, so an application's policy replaces the built-in one.
pub fn add(fields: &[(&'static str, String)], headers: &mut Headers) {
    for (name, value) in fields {
        if *name == CONTENT_SECURITY_POLICY {
            headers.set(name, value.as_str());
        } else {
            headers.push(*name, value.as_str());
        }
    }
}

/// Answers a preflight with 200 and does not pass it on: a preflight carries no credentials, so every later check would
/// refuse it.
fn preflight(
    request: &Request,
    is_allowed: bool,
    (methods, allowed): (&str, &str),
    fields: &[(&'static str, String)],
) -> Verdict {
    let asked = || {
        let all = request.headers.all("access-control-request-headers").flat_map(|value| value.split(','));
        all.map(str::trim).filter(|field| !field.is_empty())
    };
    let known = |field: &str| match allowed {
        ANY_FIELD => is_token(field) && !is_of_proxies(field),
        listed => listed.split(',').any(|known| known.eq_ignore_ascii_case(field)),
    };
    if !is_allowed || !asked().all(known) {
        return refused();
    }
    let mut answer = Response::empty(200);
    add(fields, &mut answer.headers);
    answer.headers.push("Access-Control-Max-Age", MAX_AGE);
    answer.headers.push("Access-Control-Allow-Methods", methods);
    // In a response, `*` would cover neither `Authorization` nor requests with credentials, so list the requested
    // fields.
    let listed =
        if allowed == ANY_FIELD { asked().collect::<Vec<_>>().join(",") } else { allowed.to_owned() };
    if !listed.is_empty() {
        answer.headers.push("Access-Control-Allow-Headers", listed);
    }
    Verdict::Answer(Box::new(answer))
}

fn origin_fields(
    request: &Request,
    origin: &str,
    named: bool,
    is_opaque: bool,
) -> Vec<(&'static str, String)> {
    let is_secret = |field: &str| {
        field.eq_ignore_ascii_case("authorization") || field.eq_ignore_ascii_case("proxyauthorization")
    };
    let asks = request.headers.all("access-control-request-headers").flat_map(|value| value.split(','));
    let carries = request.headers.iter().any(|(name, _)| is_secret(name));
    // Every sandboxed page has an opaque origin, whoever wrote it, so such an origin is never allowed credentials.
    let credentials =
        !is_opaque && (named || origin == DEVELOPMENT || carries || asks.map(str::trim).any(is_secret));
    if credentials {
        vec![
            ("Access-Control-Allow-Origin", origin.to_owned()),
            ("Access-Control-Allow-Credentials", "true".to_owned()),
            ("Vary", "Origin".to_owned()),
        ]
    } else {
        vec![("Access-Control-Allow-Origin", "*".to_owned())]
    }
}

fn refused() -> Verdict {
    Verdict::Answer(Box::new(Response::text(403, "")))
}

/// True if pages of different authors may have this origin, so that it does not tell who wrote a page.
#[must_use]
pub fn is_opaque(origin: &str) -> bool {
    origin == "null" || origin.split_once("://").is_some_and(|(scheme, _)| is_shell(scheme))
}

fn is_shell(scheme: &str) -> bool {
    SHELLS.iter().any(|shell| shell.eq_ignore_ascii_case(scheme))
}

/// True for `null`, and for a scheme with a host and an optional port (RFC 6454 §7). Only pages of local files have no
/// host. Values with a path, escapes or unprintable characters are refused.
#[must_use]
pub fn is_origin(origin: &str) -> bool {
    if origin == "null" {
        return true;
    }
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if authority.is_empty() {
        return is_shell(scheme);
    }
    let (host, port) = split_port(authority);
    let host_fits = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(v6) => !v6.is_empty() && v6.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b)),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    let port_fits =
        port.is_none_or(|port| !port.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    scheme_fits && host_fits && port_fits
}

/// True if the origin is this host. A proxy may have terminated TLS, so the scheme cannot be compared: http and https
/// count as the same.
#[must_use]
pub fn is_own(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "http" => "80",
        "https" => "443",
        _ => return false,
    };
    let (origin_host, origin_port) = split_port(authority);
    let (own_host, own_port) = split_port(host);
    origin_host.eq_ignore_ascii_case(own_host)
        && origin_port.unwrap_or(default) == own_port.unwrap_or(default)
}

/// Splits an authority into the host and the port, as written.
#[must_use]
pub fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    }
}

/// Header fields that show that a proxy has forwarded a request.
const FORWARDING: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "via"];

/// True for a field that proxies write and servers may trust.
fn is_of_proxies(field: &str) -> bool {
    let begins = |begin: &str| field.get(..begin.len()).is_some_and(|head| head.eq_ignore_ascii_case(begin));
    FORWARDING.iter().any(|name| field.eq_ignore_ascii_case(name)) || begins("x-forwarded-")
}

/// True if the name is a valid field name (RFC 9110 §5.6.2).
fn is_token(field: &str) -> bool {
    field.bytes().all(http1::is_token)
}

/// True if a proxy has marked the request as forwarded.
#[must_use]
pub fn is_passed_on(request: &Request) -> bool {
    FORWARDING.iter().any(|name| request.header(name).is_some())
}

/// True if the request does not come from a page of another site. A client that sends neither `Origin` nor
/// `Sec-Fetch-Site` is not a browser. `names` are this server's names; pages of the origins in `named` count as its
/// own.
#[must_use]
pub fn is_own_page(request: &Request, names: &[String], named: &[String]) -> bool {
    let is_named = |origin: &str| named.iter().any(|known| known.eq_ignore_ascii_case(origin));
    match request.header("origin") {
        Some(origin) => is_own_origin(request, origin, names) || is_named(origin),
        None => site_of(request).unwrap_or(true),
    }
}

/// True if the origin is this server's own. The browser's `Sec-Fetch-Site` decides if it is present, because no page
/// can set it. Otherwise the origin is compared with `Host`, which a proxy may have replaced, and with the names of
/// this server.
fn is_own_origin(request: &Request, origin: &str, names: &[String]) -> bool {
    site_of(request).unwrap_or_else(|| {
        is_own(origin, request.header("host").unwrap_or_default()) || is_of_names(origin, names)
    })
}

/// Returns true if the request comes from a page of the same origin or from no page, according to `Sec-Fetch-Site`
/// (Fetch Metadata §2.2). `None` if the field is absent.
fn site_of(request: &Request) -> Option<bool> {
    request.header("sec-fetch-site").map(|site| site == "same-origin" || site == "none")
}

/// True if the origin's host is one of these names. Any port is allowed.
fn is_of_names(origin: &str, names: &[String]) -> bool {
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    authority.is_some_and(|authority| is_name(split_port(authority).0, names))
}

fn is_name(host: &str, names: &[String]) -> bool {
    names.iter().any(|name| bare(name).eq_ignore_ascii_case(bare(host)))
}

/// Removes the brackets of an IPv6 address. Other hosts are returned unchanged.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// True if the request's `Host` names this machine: an address, `localhost` or a name of the server. Any other name may
/// be an attack by DNS rebinding.
#[must_use]
pub fn is_for_this_machine(request: &Request, names: &[String]) -> bool {
    request.header("host").is_none_or(|host| is_local(host, names))
}

fn is_local(host: &str, names: &[String]) -> bool {
    let (name, _) = split_port(host.trim());
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.parse::<Ipv4Addr>().is_ok()
        || v6.is_some_and(|v6| v6.parse::<Ipv6Addr>().is_ok())
        || name.eq_ignore_ascii_case("localhost")
        || is_name(name, names)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{Cors, Version};
    use super::*;

    fn request(method: Method, fields: &[(&str, &str)]) -> Request {
        let mut headers = Headers::new();
        headers.push("Host", "media.example:5080");
        fields.iter().for_each(|(name, value)| headers.push(*name, *value));
        let (target, path) = (String::new(), "/".to_owned());
        Request {
            method,
            version: Version::Http11,
            target,
            path,
            query: Vec::new(),
            headers,
            body: Bytes::new(),
            body_waits: false,
        }
    }

    fn answer(method: Method, fields: &[(&str, &str)]) -> Response {
        match check(&request(method, fields), Cors::ANYONE.policy(&[], &[], false)) {
            Verdict::Answer(response) => *response,
            Verdict::Fields(fields) => {
                let mut response = Response::empty(0);
                add(&fields, &mut response.headers);
                response
            }
        }
    }

    const ORIGIN: (&str, &str) = ("Origin", "https://page.example");

    #[test]
    fn any_origin_may_ask_without_credentials() {
        let plain = answer(Method::Get, &[ORIGIN]);
        assert_eq!(plain.headers.get("access-control-allow-origin"), Some("*"));
        assert_eq!(plain.headers.get("access-control-allow-credentials"), None);
        assert!(answer(Method::Get, &[]).headers.is_empty());
        for own in ["http://media.example:5080", "https://MEDIA.example:5080"] {
            assert!(answer(Method::Get, &[("Origin", own)]).headers.is_empty(), "{own}");
        }
    }

    #[test]
    fn a_cached_response_is_the_same_for_all_origins() {
        let fields = |method, fields: &[(&str, &str)], cors: Cors| match check(
            &request(method, fields),
            cors.policy(&[], &[], false),
        ) {
            Verdict::Fields(fields) => fields,
            Verdict::Answer(_) => panic!(),
        };
        let own = ("Origin", "http://media.example:5080");
        for method in [Method::Get, Method::Head] {
            let of_page = fields(method, &[ORIGIN], Cors::MEDIA);
            assert_eq!(of_page, [("Access-Control-Allow-Origin", "*".to_owned())]);
            for asked in [&[][..], &[own]] {
                assert_eq!(fields(method, asked, Cors::MEDIA), of_page, "{asked:?}");
                assert_eq!(fields(method, asked, Cors::ANYONE), []);
            }
        }
        assert_eq!(fields(Method::Delete, &[], Cors::MEDIA), [], "caches store reads only");
    }

    #[test]
    fn credentials_come_with_an_echo_and_never_with_a_star() {
        for fields in [
            &[ORIGIN, ("Authorization", "x")][..],
            &[ORIGIN, ("proxyauthorization", "x")],
            &[("Origin", DEVELOPMENT)],
        ] {
            let response = answer(Method::Get, fields);
            assert_eq!(response.headers.get("access-control-allow-origin"), Some(fields[0].1));
            assert_eq!(response.headers.get("access-control-allow-credentials"), Some("true"));
            assert_eq!(response.headers.get("vary"), Some("Origin"));
        }
        let opaque = answer(Method::Get, &[("Origin", "null"), ("Authorization", "x")]);
        assert_eq!(opaque.headers.get("access-control-allow-origin"), Some("*"));
    }

    #[test]
    fn preflights_are_answered_here() {
        let ask = |method, fields| {
            answer(
                Method::Options,
                &[
                    ORIGIN,
                    ("Access-Control-Request-Method", method),
                    ("Access-Control-Request-Headers", fields),
                ],
            )
        };
        let granted = ask("PUT", "Content-Type, AUTHORIZATION");
        assert_eq!((granted.status, granted.headers.get("access-control-max-age")), (200, Some("1800")));
        assert_eq!(granted.headers.get("access-control-allow-origin"), Some(ORIGIN.1));
        assert!(granted.headers.get("access-control-allow-headers").unwrap().contains("authorization"));
        assert_eq!(ask("DELETE", "").headers.get("access-control-allow-origin"), Some("*"));
        for (method, fields) in [("PATCH", ""), ("put", ""), ("", ""), ("GET", "X-Other")] {
            assert_eq!(ask(method, fields).status, 403, "{method} {fields}");
        }
    }

    #[test]
    fn public_media_takes_any_field_but_those_of_proxies() {
        let ask = |fields| {
            let wanted = [
                ORIGIN,
                ("Access-Control-Request-Method", "GET"),
                ("Access-Control-Request-Headers", fields),
            ];
            match check(&request(Method::Options, &wanted), Cors::MEDIA.policy(&[], &[], false)) {
                Verdict::Answer(response) => *response,
                Verdict::Fields(_) => panic!(),
            }
        };
        for fields in [
            "range",
            "cmcd-request,cmcd-session,cmcd-object,cmcd-status",
            "traceparent, tracestate",
            "if-none-match",
            "X-Playback-Session-Id",
        ] {
            let answer = ask(fields);
            assert_eq!(answer.headers.get("access-control-allow-headers"), Some(&*fields.replace(' ', "")));
            assert_eq!((answer.status, answer.headers.get("access-control-allow-origin")), (200, Some("*")));
        }
        let secret = ask("authorization,x-any");
        assert_eq!(secret.headers.get("access-control-allow-headers"), Some("authorization,x-any"));
        assert_eq!(secret.headers.get("access-control-allow-origin"), Some(ORIGIN.1));
        assert_eq!(ask("").headers.get("access-control-allow-headers"), None);
        for fields in
            ["X-Forwarded-For", "range,forwarded", "x-forwarded-host", "via", "x-real-ip", "a b", "a:b"]
        {
            assert_eq!(ask(fields).status, 403, "{fields}");
        }
    }

    #[test]
    fn origins_of_app_shells_and_files_are_opaque() {
        for origin in ["null", "file://", "capacitor://localhost", "ionic://localhost", "tauri://localhost"] {
            for secret in [("X", "x"), ("Authorization", "x")] {
                let response = answer(Method::Get, &[("Origin", origin), secret]);
                assert_eq!(response.headers.get("access-control-allow-origin"), Some("*"), "{origin}");
                assert_eq!(response.headers.get("access-control-allow-credentials"), None, "{origin}");
            }
        }
        // An operator may put the origin of an app shell on the list.
        let named = ["capacitor://localhost".to_owned()];
        let asked = request(Method::Get, &[("Origin", &named[0])]);
        let Verdict::Fields(fields) = check(&asked, Cors::NAMED.policy(&[], &named, false)) else { panic!() };
        assert_eq!(fields[0], ("Access-Control-Allow-Origin", named[0].clone()));
        let Verdict::Fields(fields) = check(&asked, Cors::NAMED.policy(&[], &[], false)) else { panic!() };
        assert_eq!(fields, []);
    }

    #[test]
    fn malformed_origins_are_refused() {
        for origin in [
            "",
            "page.example",
            "http://",
            "http://a/b",
            "http://a%20b",
            "http://a:0",
            "http://a:x",
            "http://a b",
            "1://a",
            "http://a, http://b",
            "NULL",
        ] {
            assert_eq!(answer(Method::Get, &[("Origin", origin)]).status, 403, "{origin}");
        }
        assert_eq!(answer(Method::Get, &[ORIGIN, ORIGIN]).status, 403);
        assert_eq!(answer(Method::Patch, &[ORIGIN]).status, 403);
        for origin in ["null", "http://[::1]:80", "capacitor://localhost", "file://x"] {
            assert_eq!(answer(Method::Get, &[("Origin", origin)]).status, 0, "{origin}");
        }
    }

    #[test]
    fn where_the_address_is_the_only_check_pages_of_others_read_only() {
        let ask = |method, fields: &[(&str, &str)], named: &[String], needs_token| match check(
            &request(method, fields),
            Cors::TOKENS.policy(&[], named, needs_token),
        ) {
            Verdict::Answer(response) => response.status,
            Verdict::Fields(fields) => {
                if fields.is_empty() {
                    0
                } else {
                    1
                }
            }
        };
        let preflight = [ORIGIN, ("Access-Control-Request-Method", "POST")];
        let named = [ORIGIN.1.to_owned()];
        assert_eq!(ask(Method::Options, &preflight, &[], false), 403);
        assert_eq!(ask(Method::Post, &[ORIGIN], &[], false), 403);
        assert_eq!(ask(Method::Get, &[ORIGIN], &[], false), 1);
        for (names, needs_token) in [(&[][..], true), (&named[..], false)] {
            assert_eq!(ask(Method::Options, &preflight, names, needs_token), 200);
            assert_eq!(ask(Method::Post, &[ORIGIN], names, needs_token), 1);
        }
        let own = ("Origin", "http://media.example:5080");
        assert_eq!(ask(Method::Post, &[own], &[], false), 0, "our own page");
    }

    #[test]
    fn r_35_management_is_for_named_origins_only() {
        let named = [ORIGIN.1.to_owned()];
        let ask = |origin, named: &[String]| match check(
            &request(Method::Get, &[("Origin", origin)]),
            Cors::NAMED.policy(&[], named, false),
        ) {
            Verdict::Fields(fields) => fields,
            Verdict::Answer(_) => panic!(),
        };
        assert_eq!(ask(ORIGIN.1, &[]), []);
        assert_eq!(ask("https://other.example", &named), []);
        assert_eq!(ask(ORIGIN.1, &named)[0], ("Access-Control-Allow-Origin", ORIGIN.1.to_owned()));
    }

    #[test]
    fn a_page_is_own_by_the_word_of_the_browser_or_by_the_names_of_the_server() {
        let names = ["media.example".to_owned(), "second.example".to_owned(), "fd00::1".to_owned()];
        let is_own = |origin: &str, host: &str, site: Option<&str>| {
            let mut request = request(Method::Post, &[("Origin", origin)]);
            request.headers.set("Host", host);
            if let Some(site) = site {
                request.headers.push("Sec-Fetch-Site", site);
            }
            is_own_page(&request, &names, &[])
        };
        for (origin, host, site, want) in [
            ("https://media.example", "127.0.0.1:5080", None, true),
            ("https://media.example:8443", "media.example", None, true),
            ("http://SECOND.example", "media.example", None, true),
            ("http://[fd00::1]:81", "x", None, true),
            ("https://third.example", "127.0.0.1:5080", Some("same-origin"), true),
            ("https://third.example", "third.example", None, true),
            ("https://third.example", "127.0.0.1:5080", None, false),
            ("https://media.example.evil.example", "127.0.0.1:5080", None, false),
            ("ftp://media.example", "127.0.0.1:5080", None, false),
            ("null", "127.0.0.1:5080", None, false),
            // A page of the same host at another port; and a page of another site whose host this server takes for its
            // own.
            ("https://media.example:9999", "media.example", Some("same-site"), false),
            ("https://media.example", "media.example", Some("cross-site"), false),
        ] {
            assert_eq!(is_own(origin, host, site), want, "{origin} {host} {site:?}");
        }
    }

    #[test]
    fn hosts_of_this_machine() {
        let names = ["other.example".to_owned(), "Media.Example".to_owned()];
        for host in
            ["127.0.0.1", "127.0.0.1:5080", "[::1]:5080", "LOCALHOST:80", "media.example:5080", "10.0.0.7"]
        {
            assert!(is_local(host, &names), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:5080", "127.0.0.1.evil.example", "[evil]", "", "::1"]
        {
            assert!(!is_local(host, &names) && !is_local(host, &[]), "{host}");
        }
    }
}
