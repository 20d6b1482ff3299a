//! Credentials of the AWS role of the machine or container. They are requested from the address in the container's
//! environment, or else from the machine's metadata service (IMDSv2). That service requires a token first, which a
//! request forged through this server could not have.
//!
//! Credentials are cached, and renewed five minutes before they expire. The addresses are set by the platform, not by
//! settings or clients. Therefore the outbound policy, which refuses link-local addresses, is not applied to them.

use std::fmt;
use std::io::Read;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;

use super::posts;
use crate::auth::access::Secret;
use crate::io::clock;

/// The metadata service of a machine.
const MACHINE: &str = "http://169.254.169.254";
/// The service that `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` is relative to.
const CONTAINER: &str = "http://169.254.170.2";
/// Hosts that a container's environment may name without TLS, besides this machine.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];
/// Time in milliseconds before expiry at which credentials are requested again.
const EARLY_MS: u64 = 300_000;
/// Timeout of a request. The service is on this machine, or does not exist.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes of a response, and of a file with a token.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Temporary credentials, valid for some hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleCredentials {
    pub(super) access_key: Secret,
    pub(super) secret_key: Secret,
    pub(super) token: Secret,
    expires_ms: u64,
}

/// The response of the credential service of a container or of the machine.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

/// Service that issues the credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Container { url: String, authorization: Option<Authorization> },
    Machine { base: String },
}

/// The authorization that a container's service requires.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Authorization {
    Text(Secret),
    /// Path of a file that contains the token. The file is rewritten from time to time.
    File(String),
}

/// The credentials of the role. They are cached as long as they are valid.
#[derive(Default)]
pub(super) struct Roles {
    kept: Mutex<Option<RoleCredentials>>,
}

/// Prints no credentials.
impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roles").finish_non_exhaustive()
    }
}

impl Roles {
    /// Returns the current credentials. While one thread requests them, other threads wait.
    pub(super) fn credentials(&self, environment: &[(String, String)]) -> Result<RoleCredentials, String> {
        let now_ms = clock::now().wall_ms;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |kept: &&RoleCredentials, early| now_ms.saturating_add(early) < kept.expires_ms;
        if let Some(good) = kept.as_ref().filter(|kept| is_good(kept, EARLY_MS)) {
            return Ok(good.clone());
        }
        match Source::of(environment).and_then(|source| source.ask(&posts::platform_agent())) {
            Ok(new) if new.expires_ms > now_ms => {
                *kept = Some(new.clone());
                Ok(new)
            }
            Ok(_) => Err("the role's credentials have expired".to_owned()),
            // The cached credentials may still be valid for some minutes.
            Err(reason) => kept.as_ref().filter(|kept| is_good(kept, 0)).cloned().ok_or(reason),
        }
    }
}

impl Source {
    /// Selects the service that issues the credentials, in the same way as Amazon's own libraries.
    fn of(environment: &[(String, String)]) -> Result<Self, String> {
        let find = |name: &str| {
            let found = environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim());
            found.filter(|value| !value.is_empty())
        };
        let file =
            find("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(|file| Authorization::File(file.to_owned()));
        let text =
            find("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(|text| Authorization::Text(Secret::new(text)));
        let authorization = file.or(text);
        if let Some(path) = find("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            let url = format!("{CONTAINER}/{}", path.trim_start_matches('/'));
            return Ok(Self::Container { url, authorization });
        }
        if let Some(url) = find("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            let is_trusted = url::Url::parse(url).is_ok_and(|url| is_of_the_platform(&url));
            return if is_trusted {
                Ok(Self::Container { url: url.to_owned(), authorization })
            } else {
                Err("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or of this machine".to_owned())
            };
        }
        if find("AWS_EC2_METADATA_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true")) {
            return Err("AWS_EC2_METADATA_DISABLED is set".to_owned());
        }
        let base = find("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(MACHINE).trim_end_matches('/');
        Ok(Self::Machine { base: base.to_owned() })
    }

    fn ask(&self, agent: &Agent) -> Result<RoleCredentials, String> {
        let text = match self {
            Self::Container { url, authorization } => {
                let token = authorization.as_ref().map(Authorization::text).transpose()?;
                let fields: Vec<(&str, &str)> =
                    token.as_ref().map(|token| ("Authorization", token.reveal())).into_iter().collect();
                request(agent, "GET", url, &fields)?
            }
            Self::Machine { base } => {
                let ttl = ("X-aws-ec2-metadata-token-ttl-seconds", "21600");
                let token = request(agent, "PUT", &format!("{base}/latest/api/token"), &[ttl])?;
                let token = [("X-aws-ec2-metadata-token", token.trim())];
                let folder = format!("{base}/latest/meta-data/iam/security-credentials/");
                let roles = request(agent, "GET", &folder, &token)?;
                let role = roles.lines().next().map(str::trim).filter(|role| is_name(role));
                let role = role.ok_or("the machine has no role")?;
                request(agent, "GET", &format!("{folder}{role}"), &token)?
            }
        };
        let answer: Answer =
            serde_json::from_str(&text).map_err(|_| "the answer has no credentials".to_owned())?;
        let expires_ms = unix_ms(&answer.expiration).ok_or("the credentials have no time")?;
        Ok(RoleCredentials {
            access_key: Secret::new(&answer.access_key_id),
            secret_key: Secret::new(&answer.secret_access_key),
            token: Secret::new(&answer.token),
            expires_ms,
        })
    }
}

impl Authorization {
    fn text(&self) -> Result<Secret, String> {
        let file = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::File(file) => file,
        };
        let mut text = String::new();
        let read =
            std::fs::File::open(file).and_then(|file| file.take(ANSWER_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|error| format!("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: {error}"))?;
        Ok(Secret::new(text.trim()))
    }
}

/// True if credentials may be requested from a URL: it uses TLS, or names this machine or a service of the platform.
fn is_of_the_platform(url: &url::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let is_here = match url.host() {
        Some(url::Host::Ipv4(v4)) => v4.is_loopback(),
        Some(url::Host::Ipv6(v6)) => v6.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => true,
        "http" => is_here || CONTAINER_HOSTS.contains(&host),
        _ => false,
    }
}

fn is_name(role: &str) -> bool {
    !role.is_empty() && role.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte))
}

/// Sends a request and reads the answer as text.
fn request(agent: &Agent, method: &str, url: &str, fields: &[(&str, &str)]) -> Result<String, String> {
    let mut asked = ureq::http::Request::builder().method(method).uri(url).header("Connection", "close");
    for (name, value) in fields {
        asked = asked.header(*name, *value);
    }
    let asked = asked.body(()).map_err(|_| "no request".to_owned())?;
    let asked =
        agent.configure_request(asked).timeout_global(Some(TIMEOUT)).allow_non_standard_methods(true).build();
    let mut response = agent.run(asked).map_err(|error| posts::reason(&error))?;
    let status = response.status().as_u16();
    let mut text = String::new();
    let body = response.body_mut().as_reader().take(ANSWER_BYTES_MAX);
    let mut body = body;
    body.read_to_string(&mut text).map_err(|_| "the answer did not come whole".to_owned())?;
    if status == 200 { Ok(text) } else { Err(format!("the status is {status}")) }
}

/// Parses a time like `2026-11-27T16:00:00Z` to milliseconds of Unix time.
fn unix_ms(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let three = |text: &str, by: char| {
        let mut parts = text.split(by).map(|part| part.parse::<i64>().ok());
        Some((parts.next()??, parts.next()??, parts.next()??)).filter(|_| parts.next().is_none())
    };
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let ((year, month, day), (hour, minute, second)) = (three(date, '-')?, three(time, ':')?);
    let is_sane = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_sane =
        is_sane && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    // Here a year begins in March, so that a leap day is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    u64::try_from(seconds).ok().filter(|_| is_sane)?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex as Lock};
    use std::thread;

    /// Starts a service whose answer depends on the first line of a request, and records the requests.
    fn service(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Lock<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Lock::new(Vec::new()));
        let keeps = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let body = answer(&head[0]);
                keeps.lock().unwrap().push(head.join("\n"));
                let (status, body) = body.split_once(' ').unwrap();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
                let _ = write!(&stream, "{head}{body}");
                // Closing a socket with unread bytes would reset the connection, and the answer would be lost.
                thread::spawn(move || std::io::copy(&mut &stream, &mut std::io::sink()));
            }
        });
        (base, heard)
    }

    fn credentials(key: &str, expiration: &str) -> String {
        format!(
            r#"200 {{"Code":"Success","AccessKeyId":"{key}","SecretAccessKey":"s","Token":"t","Expiration":"{expiration}"}}"#
        )
    }

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_machine_is_asked_with_a_token_and_once_until_shortly_before_the_end() {
        let (base, heard) = service(|line| match line.split(' ').nth(1).unwrap() {
            "/latest/api/token" => "200 the-token".to_owned(),
            "/latest/meta-data/iam/security-credentials/" => "200 media-role\nother".to_owned(),
            _ => credentials("AKIA1", "2999-01-01T00:00:00Z"),
        });
        let roles = Roles::default();
        let environment = environment(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &base)]);
        for _ in 0..3 {
            let found = roles.credentials(&environment).unwrap();
            assert_eq!((found.access_key.reveal(), found.token.reveal()), ("AKIA1", "t"));
            assert!(!format!("{found:?} {roles:?}").contains("AKIA1"));
        }
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[0].starts_with("PUT /latest/api/token ") && heard[0].contains("ttl-seconds: 21600"));
        assert!(heard[2].starts_with("GET /latest/meta-data/iam/security-credentials/media-role "));
        assert!(
            heard[1..].iter().all(|head| head.contains("x-aws-ec2-metadata-token: the-token")),
            "{heard:?}"
        );
    }

    #[test]
    fn a_container_has_an_address_and_a_token_and_credentials_are_renewed() {
        let count = std::sync::atomic::AtomicU32::new(0);
        let (base, heard) = service(move |_| {
            let nth = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            // The first credentials are valid, but about to expire.
            let soon = clock::now().wall_ms + 60_000;
            let civil = crate::types::Civil::of_unix_ms(soon);
            let soon = format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
            );
            match nth {
                0 => credentials("AKIA1", &soon),
                1 => "500 broken".to_owned(),
                _ => credentials("AKIA2", "2999-01-01T00:00:00Z"),
            }
        });
        let roles = Roles::default();
        let environment = environment(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{base}/role")),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "of the container"),
        ]);
        let key = || roles.credentials(&environment).map(|found| found.access_key.reveal().to_owned());
        assert_eq!(key().unwrap(), "AKIA1");
        assert_eq!(key().unwrap(), "AKIA1", "good still, when the service fails");
        assert_eq!(key().unwrap(), "AKIA2", "renewed before the end");
        assert_eq!(key().unwrap(), "AKIA2");
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 3);
        assert!(heard.iter().all(|head| head.contains("authorization: of the container")), "{heard:?}");
    }

    #[test]
    fn without_a_role_there_is_a_reason() {
        let (none, _) = service(|line| if line.starts_with("PUT") { "200 t" } else { "404 no" }.to_owned());
        let (odd, _) = service(|_| "200 <html>".to_owned());
        let (past, _) = service(|_| credentials("AKIA1", "2001-01-01T00:00:00Z"));
        for (name, value) in [
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", none.as_str()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", odd.as_str()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", past.as_str()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/role"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "file:///etc/passwd"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ] {
            assert!(Roles::default().credentials(&environment(&[(name, value)])).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn sources_are_those_of_amazon_s_libraries() {
        let source = |pairs: &[_]| Source::of(&environment(pairs)).unwrap();
        assert_eq!(source(&[]), Source::Machine { base: MACHINE.to_owned() });
        let relative = source(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/x")]);
        let url = "http://169.254.170.2/v2/credentials/x".to_owned();
        assert_eq!(relative, Source::Container { url, authorization: None });
        let file = source(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/var/run/token"),
        ]);
        let url = "http://169.254.170.23/v1/credentials".to_owned();
        let authorization = Some(Authorization::File("/var/run/token".to_owned()));
        assert_eq!(file, Source::Container { url, authorization });
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T23:59:59Z", Some(951_868_799_000)),
            ("2026-11-27T16:30:00.123Z", Some(1_795_797_000_000)),
            ("2026-13-01T00:00:00Z", None),
            ("2026-11-27T16:30:00+01:00", None),
            ("", None),
        ] {
            assert_eq!(unix_ms(text), ms, "{text}");
        }
    }
}
