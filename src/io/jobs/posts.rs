//! POSTs to operators' receivers: hooks, and admission hooks.
//!
//! Connections are made only to addresses that the policy allows. The resolver below resolves each name for each
//! connection and passes only allowed addresses to ureq. Connections are not reused. A later DNS answer therefore
//! cannot change the address (docs/robustness.md U-31, U-32). Redirects are not followed (U-33), and proxies named in
//! the environment are not used.

use std::borrow::Cow;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use crypto::hmac_sha256;
use data_encoding::HEXLOWER;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Agent, Error};

use super::patience;
use crate::auth::access::Secret;
use crate::auth::{HookUrl, OutboundPolicy};
use crate::io::{clock, tls};
use crate::jobs::{BodyType, Post};

/// Maximum bytes read of a response.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Maximum size of a fetched document in bytes.
const DOCUMENT_BYTES_MAX: u64 = 256 << 10;
/// Timeout for fetching a document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response head in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Resolves a name; tests supply their own.
type Lookup = dyn Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync;

/// The policy that decides to which addresses the threads may connect. The lock is held while the addresses of a name
/// are checked.
pub(super) type Policy = Arc<RwLock<OutboundPolicy>>;

pub(super) fn policy(policy: OutboundPolicy) -> Policy {
    Arc::new(RwLock::new(policy))
}

pub(super) fn set_policy(shared: &Policy, policy: OutboundPolicy) {
    *shared.write().unwrap_or_else(PoisonError::into_inner) = policy;
}

/// Makes an agent with the system's resolver. Reads the system's certificates.
pub(super) fn system_agent(policy: Policy) -> Agent {
    agent(policy, Arc::new(system_lookup))
}

/// Returns the media type and the encoded bytes of a body. The boundary of a multipart form is a digest of the value,
/// so the value cannot contain it.
fn typed(request: &Post) -> (Cow<'static, str>, Cow<'_, [u8]>) {
    match request.body_type {
        BodyType::Json => ("application/json".into(), Cow::Borrowed(&request.body)),
        BodyType::Form => ("application/x-www-form-urlencoded".into(), Cow::Borrowed(&request.body)),
        BodyType::Data => {
            let digest = crypto::sha256(&[&request.body]);
            let boundary: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut body =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n").into_bytes();
            body.extend_from_slice(&request.body);
            body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            (format!("multipart/form-data; boundary={boundary}").into(), Cow::Owned(body))
        }
    }
}

/// Sends a POST. Returns the status, or the reason why there is none. The time for which the job has waited for a
/// thread is subtracted from the timeout.
pub(super) fn post(agent: &Agent, request: &Post, waited: Duration) -> Result<u16, String> {
    let left = request.timeout.checked_sub(waited).filter(|left| !left.is_zero());
    let Some(left) = left else { return Err("all threads are busy".to_owned()) };
    let (content_type, body) = typed(request);
    let mut asked = agent
        .post(request.url.as_str())
        .config()
        .timeout_global(Some(left))
        .build()
        .header("Content-Type", &*content_type)
        .header("Connection", "close");
    if !request.secret.is_empty() {
        let seconds = (clock::now().wall_ms / 1000).to_string();
        let signature = signature(&request.secret, &seconds, &body);
        asked = asked.header("X-Millstream-Timestamp", seconds).header("X-Millstream-Signature", signature);
    }
    let sent = asked.send(&body[..]);
    let mut response = sent.map_err(|error| reason(&error))?;
    let status = response.status().as_u16();
    // Read the response, so that the connection is not closed while the receiver sends a response of usual size. Its
    // content is not used.
    let body = response.body_mut().as_reader();
    let _ = std::io::copy(&mut body.take(ANSWER_BYTES_MAX), &mut std::io::sink());
    Ok(status)
}

/// Fetches a small document.
pub(super) fn fetch(agent: &Agent, url: &HookUrl) -> Result<Bytes, String> {
    let asked = agent.get(url.as_str()).config().timeout_global(Some(FETCH_TIMEOUT)).build();
    let sent = asked.header("Accept", "application/json").header("Connection", "close").call();
    let mut response = sent.map_err(|error| reason(&error))?;
    if response.status() != 200 {
        return Err(format!("the status is {}", response.status().as_u16()));
    }
    let mut document = Vec::new();
    let body = response.body_mut().as_reader();
    body.take(DOCUMENT_BYTES_MAX.saturating_add(1))
        .read_to_end(&mut document)
        .map_err(|_| "the document did not come whole".to_owned())?;
    if u64::try_from(document.len()).is_ok_and(|length| length <= DOCUMENT_BYTES_MAX) {
        Ok(document.into())
    } else {
        Err("the document is larger than 256 KiB".to_owned())
    }
}

/// Returns the signature of a request. The time is part of the signed text, so that a receiver can detect replays
/// (docs/hooks.md).
fn signature(secret: &Secret, seconds: &str, body: &[u8]) -> String {
    let mac = hmac_sha256(secret.reveal().as_bytes(), &[seconds.as_bytes(), b".", body]);
    format!("sha256={}", HEXLOWER.encode(&mac))
}

/// Returns the text of an error without the URL, because the URL may contain keys.
pub(super) fn reason(error: &Error) -> String {
    if matches!(error, Error::BadUri(_)) {
        "the URL cannot be used".to_owned()
    } else if matches!(error, Error::HostNotFound) {
        "the host has no address that may be connected to".to_owned()
    } else if matches!(error, Error::Timeout(_)) {
        "timed out".to_owned()
    } else {
        error.to_string().chars().take(200).collect()
    }
}

fn system_lookup(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.take(ADDRESSES_MAX * 4).collect())
}

fn agent(policy: Policy, lookup: Arc<Lookup>) -> Agent {
    Agent::with_parts(config(), patience::connector(), PolicyResolver { policy, lookup })
}

/// Makes an agent for services of the platform. Their addresses depend neither on settings nor on clients.
pub(super) fn platform_agent() -> Agent {
    Agent::with_parts(config(), patience::connector(), DefaultResolver::default())
}

fn config() -> Config {
    let tls = TlsConfig::builder()
        .root_certs(roots())
        .unversioned_rustls_crypto_provider(Arc::new(tls::provider()))
        .build();
    Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .max_idle_connections(0)
        .max_response_header_size(HEAD_BYTES_MAX)
        .user_agent(concat!("millstream/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build()
}

/// Returns the system's trusted certificates, as for outgoing RTMPS.
fn roots() -> RootCerts {
    let system = rustls_native_certs::load_native_certs().certs;
    if system.is_empty() {
        return RootCerts::WebPki;
    }
    let certificates: Vec<Certificate<'static>> =
        system.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
    RootCerts::new_with_certs(&certificates)
}

/// A resolver that returns only addresses allowed by the policy.
struct PolicyResolver {
    policy: Policy,
    lookup: Arc<Lookup>,
}

impl std::fmt::Debug for PolicyResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyResolver").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Resolver for PolicyResolver {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().ok_or(Error::HostNotFound)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        let mut allowed = self.empty();
        let all = (self.lookup)(host, port)?;
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        for address in all.into_iter().filter(|address| policy.check(*address).is_ok()).take(ADDRESSES_MAX) {
            allowed.push(address);
        }
        if allowed.is_empty() { Err(Error::HostNotFound) } else { Ok(allowed) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use bytes::Bytes;

    use super::*;
    use crate::auth::{HookUrl, cidr};
    use crate::jobs::Receiver;

    /// Starts a receiver that gives each connection the same answer and counts the connections.
    fn receiver(answer: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut lines = BufReader::new(&stream).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let _ = (&stream).write_all(answer);
            }
        });
        (address, count)
    }

    fn request(url: &str) -> Post {
        Post {
            receiver: Receiver::Hook,
            url: HookUrl::parse(url).unwrap(),
            body: Bytes::from_static(b"{}"),
            body_type: BodyType::Json,
            secret: Secret::default(),
            timeout: Duration::from_secs(5),
        }
    }

    fn send(agent: &Agent, request: &Post) -> Result<u16, String> {
        post(agent, request, Duration::ZERO)
    }

    fn with_policy(policy: OutboundPolicy) -> Agent {
        agent(Arc::new(RwLock::new(policy)), Arc::new(system_lookup))
    }

    #[test]
    fn the_status_is_the_answer() {
        let (address, _) = receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let agent = with_policy(OutboundPolicy::default());
        assert_eq!(send(&agent, &request(&format!("http://{address}/hook"))), Ok(200));
        let (address, _) = receiver(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(send(&agent, &request(&format!("http://{address}/hook"))), Ok(503));
        let (address, _) = receiver(b"");
        assert!(send(&agent, &request(&format!("http://{address}/hook"))).is_err());
        let (address, _) = receiver(b"rubbish\r\n\r\n");
        assert!(send(&agent, &request(&format!("http://{address}/hook"))).is_err());
    }

    #[test]
    fn a_document_is_whole_small_and_not_elsewhere() {
        let agent = with_policy(OutboundPolicy::default());
        let get = |answer| {
            let (address, _) = receiver(answer);
            fetch(&agent, &HookUrl::parse(&format!("http://{address}/keys")).unwrap())
        };
        assert_eq!(get(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").as_deref(), Ok(&b"{}"[..]));
        for bad in [
            &b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}"[..],
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
            b"",
        ] {
            assert!(get(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        let mut large = b"HTTP/1.1 200 OK\r\nContent-Length: 262145\r\n\r\n".to_vec();
        large.resize(large.len() + 262_145, b' ');
        assert!(get(Box::leak(large.into_boxed_slice())).unwrap_err().contains("256 KiB"));
        let closed =
            OutboundPolicy { deny: cidr::parse("127.0.0.0/8").unwrap(), ..OutboundPolicy::default() };
        let (address, count) = receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let url = HookUrl::parse(&format!("http://{address}/keys")).unwrap();
        assert!(fetch(&with_policy(closed), &url).is_err());
        assert_eq!(count.load(Ordering::SeqCst), 0, "what the policy denies is not connected to");
    }

    #[test]
    fn a_signed_body_comes_with_its_time_and_its_signature() {
        // The signature is the output of:
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
        let secret = Secret::new("0123456789abcdef0123456789abcdef");
        let wanted = "sha256=417adf36b901772f658597a76d329694e335e65fc0849d7715c3ca33406309b5";
        assert_eq!(signature(&secret, "1700000000", b"{}"), wanted);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let heard = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            head
        });
        let agent = with_policy(OutboundPolicy::default());
        assert_eq!(send(&agent, &Post { secret: secret.clone(), ..request(&url) }), Ok(200));
        let head = heard.join().unwrap();
        let field = |name: &str| {
            let lines = head.iter().filter_map(|line| line.split_once(": "));
            lines
                .filter(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
                .next()
                .unwrap()
        };
        let seconds = field("x-millstream-timestamp");
        assert_eq!(field("x-millstream-signature"), signature(&secret, seconds, b"{}"));
    }

    #[test]
    fn u_31_the_address_decides_whatever_it_is_called() {
        let (address, count) = receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let policy = OutboundPolicy { own_ports: vec![address.port()], ..OutboundPolicy::default() };
        let agent = with_policy(policy);
        let port = address.port();
        for host in ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::ffff:7f00:1]", "localhost"] {
            let result = send(&agent, &request(&format!("http://{host}:{port}/")));
            assert!(result.is_err(), "{host}: {result:?}");
        }
        for url in ["http://169.254.169.254/latest", "http://0.0.0.0/", "http://[::]/", "http://[fe80::1]/"] {
            assert!(send(&agent, &request(url)).is_err(), "{url}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn u_32_a_name_that_changes_its_mind_leads_nowhere_else() {
        let (good, at_good) = receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let (bad, at_bad) = receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let policy = OutboundPolicy { own_ports: vec![bad.port()], ..OutboundPolicy::default() };
        let answers = AtomicUsize::new(0);
        let lookup = move |_: &str, _: u16| {
            let first = answers.fetch_add(1, Ordering::SeqCst) == 0;
            Ok(vec![if first { good } else { bad }])
        };
        let agent = agent(Arc::new(RwLock::new(policy)), Arc::new(lookup));
        let url = "http://rebinding.example/hook";
        // The connection is made to the address that was checked, although the name then resolves to another address.
        assert_eq!(send(&agent, &request(url)), Ok(200));
        assert!(send(&agent, &request(url)).is_err());
        assert_eq!((at_good.load(Ordering::SeqCst), at_bad.load(Ordering::SeqCst)), (1, 0));
    }

    #[test]
    fn u_33_redirects_are_not_followed() {
        let (address, count) =
            receiver(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n");
        let agent = with_policy(OutboundPolicy::default());
        assert_eq!(send(&agent, &request(&format!("http://{address}/"))), Ok(302));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn u_36_huge_answers_are_not_read_to_their_end() {
        let agent = with_policy(OutboundPolicy::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sender = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut sent = 0usize;
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
            let _ = stream.write_all(head);
            while stream.write_all(&[b'x'; 65_536]).is_ok() && sent < 1_000_000_000 {
                sent += 65_536;
            }
            sent
        });
        assert_eq!(send(&agent, &request(&format!("http://{address}/"))), Ok(200));
        // The response was not read to its end, so the sender could send only as much as the two kernels
        // buffer.
        assert!(sender.join().unwrap() < 32 << 20);
        let head: &'static [u8] = Box::leak(
            [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &vec![b'x'; 100_000], b"\r\n\r\n"]
                .concat()
                .into_boxed_slice(),
        );
        let (address, _) = receiver(head);
        assert!(send(&agent, &request(&format!("http://{address}/"))).is_err());
    }

    #[test]
    fn u_36_a_silent_receiver_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let agent = with_policy(OutboundPolicy::default());
        let request = Post { timeout: Duration::from_millis(100), ..request(&url) };
        assert_eq!(send(&agent, &request), Err("timed out".to_owned()));
        // The time for which the job has waited for a thread is subtracted from the timeout.
        let waited = post(&agent, &request, Duration::from_millis(100));
        assert_eq!(waited, Err("all threads are busy".to_owned()));
    }

    /// A peer cannot forge a field: a value appears whole between the boundaries, whatever it contains.
    #[test]
    fn a_message_of_a_data_channel_is_the_field_data_of_a_form() {
        let forged = b"x\r\n--millstream\r\nContent-Disposition: form-data; name=\"admin\"\r\n\r\n1";
        for value in [&b"hello"[..], b"", &[0, 255, 13, 10], forged] {
            let post = Post {
                body: value.to_vec().into(),
                body_type: BodyType::Data,
                ..request("http://h.example/")
            };
            let (content_type, body) = typed(&post);
            let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
            let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n");
            let inner = body.strip_prefix(head.as_bytes()).unwrap();
            assert_eq!(inner.strip_suffix(format!("\r\n--{boundary}--\r\n").as_bytes()).unwrap(), value);
            assert!(!value.windows(boundary.len()).any(|part| part == boundary.as_bytes()));
        }
        assert_eq!(typed(&request("http://h.example/")).0, "application/json");
    }
}
