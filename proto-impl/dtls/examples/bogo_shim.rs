//! Shim for BoringSSL's test runner (`ssl/test/runner`; PORTING.md there describes the interface). Uses one
//! connection over TCP, with framed packets, and with time as an input. `bogo.json`, next to this crate's
//! manifest, lists the excluded tests with reasons.
//!
//! A test of an unsupported feature ends with exit code 89. This also applies to a test of session resumption,
//! but only after its first connection, so that errors in the first connection are reported.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the socket and the clock"
)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use dtls::{CloseReason, Config, Connection, Event, Identity, PeerCheck, SrtpProfile, Versions};
use wire::Datagrams;

/// Exit code "unimplemented" for the runner.
const UNIMPLEMENTED: u8 = 89;
/// Number of transmissions of a flight after which BoringSSL gives up.
const TRIES: u32 = 13;
/// Maximum pause between retransmissions. The runner depends on this value.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Handshake timeout that is never reached. The implementation limits a handshake as a whole, but the runner
/// limits each flight, so the shim counts the tries itself.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// Version number of DTLS 1.2.
const VERSION_1_2: u16 = 0xfefd;
/// Version number of DTLS 1.3. A lower number is a later version.
const VERSION_1_3: u16 = 0xfefc;

type Any = Box<dyn Error>;

/// Arguments of the runner.
#[derive(Default)]
struct Flags {
    server: bool,
    ipv6: bool,
    port: u16,
    id: u64,
    mtu: Option<usize>,
    certificate: Option<String>,
    key: Option<String>,
    asks: bool,
    asks_always: bool,
    /// True if the verification of the peer's certificate must fail.
    distrusts: bool,
    /// Number of connections after the first.
    resumes: u32,
    /// True if the later connections are expected not to resume a session.
    begins_anew: bool,
    /// True if the certificate is given as a credential, from which the library may select.
    is_credential: bool,
    /// Earliest version that the runner allows, if it sets a limit.
    earliest: Option<u16>,
    latest: Option<u16>,
    profiles: Vec<SrtpProfile>,
    first_pause: Option<u64>,
    writes_first: bool,
    /// True if the keys are updated before each read.
    updates_keys: bool,
    shuts_down: bool,
    export: usize,
    export_label: String,
    export_context: String,
    export_with_context: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "-is-handshaker-supported") {
        println!("No");
        return ExitCode::SUCCESS;
    }
    let Some(flags) = read(arguments.into_iter()) else { return ExitCode::from(UNIMPLEMENTED) };
    let Some(config) = config(&flags) else { return ExitCode::from(UNIMPLEMENTED) };
    let result = (0..=flags.resumes).try_for_each(|number| {
        if number > 0 && !flags.begins_anew {
            return Err(End::Unimplemented);
        }
        run(&flags, &config)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Unimplemented) => ExitCode::from(UNIMPLEMENTED),
        Err(End::Failed(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reason why a connection failed.
enum End {
    Unimplemented,
    Failed(Any),
}

impl<E: Into<Any>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Reads the arguments. Returns `None` if a feature is not supported.
fn read(mut arguments: impl Iterator<Item = String>) -> Option<Flags> {
    let mut flags = Flags::default();
    let (mut is_dtls, mut looks_at_resumption) = (false, false);
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next();
        match flag.as_str() {
            "-dtls" => is_dtls = true,
            "-server" => flags.server = true,
            "-ipv6" => flags.ipv6 = true,
            "-port" => flags.port = value()?.parse().ok()?,
            "-shim-id" => flags.id = value()?.parse().ok()?,
            "-mtu" => flags.mtu = value()?.parse().ok(),
            "-cert-file" => flags.certificate = value(),
            "-key-file" => flags.key = value(),
            "-verify-peer" => flags.asks = true,
            "-require-any-client-certificate" => flags.asks_always = true,
            "-verify-fail" => flags.distrusts = true,
            "-resume-count" => flags.resumes = value()?.parse().ok()?,
            "-expect-session-miss" => flags.begins_anew = true,
            "-new-x509-credential" => {
                // Only one certificate is supported, with no choice between several.
                let first = flags.certificate.is_none() && !std::mem::replace(&mut flags.is_credential, true);
                first.then_some(())?;
            }
            "-expect-selected-credential" => (value()? == "0" && flags.is_credential).then_some(())?,
            "-srtp-profiles" => flags.profiles = profiles(&value()?)?,
            "-initial-timeout-duration-ms" => flags.first_pause = value()?.parse().ok(),
            "-shim-writes-first" => flags.writes_first = true,
            "-key-update-before-read" => flags.updates_keys = true,
            "-shim-shuts-down" => flags.shuts_down = true,
            "-export-keying-material" => flags.export = value()?.parse().ok()?,
            "-export-label" => flags.export_label = value()?,
            "-export-context" => flags.export_context = value()?,
            "-use-export-context" => flags.export_with_context = true,
            // Expectations about resumed sessions. A test that sets them without a second connection is not
            // supported.
            "-on-resume-verify-fail"
            | "-reverify-on-resume"
            | "-expect-verify-result"
            | "-expect-ticket-renewal"
            | "-expect-session-id"
            | "-expect-no-session-id" => looks_at_resumption = true,
            // Ignored options: they control how BoringSSL would be called, or concern DTLS 1.3 or
            // QUIC. The shim verifies no chains, so it has no trust store.
            "-async"
            | "-use-early-callback"
            | "-expect-no-hrr"
            | "-implicit-handshake"
            | "-use-custom-verify-callback"
            | "-no-tls11"
            | "-no-tls1"
            | "-no-ticket"
            | "-use-old-client-cert-callback" => {}
            "-trust-cert" | "-quic-use-legacy-codepoint" => drop(value()?),
            "-max-version" => flags.latest = Some(value()?.parse().ok()?),
            "-min-version" => flags.earliest = Some(value()?.parse().ok()?),
            "-no-tls13" => flags.latest = Some(VERSION_1_2),
            "-no-tls12" => flags.earliest = Some(VERSION_1_3),
            _ => return None,
        }
    }
    if flags.resumes == 0 && looks_at_resumption {
        return None;
    }
    // A server that requests a certificate but continues without one is not supported.
    let optional = flags.server && flags.asks && !flags.asks_always;
    (is_dtls && !optional).then_some(flags)
}

/// Returns the versions to support; `None` if the runner allows no supported version.
fn versions(flags: &Flags) -> Option<Versions> {
    let speaks = |version| {
        flags.latest.is_none_or(|latest| version >= latest)
            && flags.earliest.is_none_or(|least| version <= least)
    };
    match (speaks(VERSION_1_2), speaks(VERSION_1_3)) {
        (true, true) => Some(Versions::Both),
        (true, false) => Some(Versions::Only12),
        (false, true) => Some(Versions::Only13),
        (false, false) => None,
    }
}

fn profiles(names: &str) -> Option<Vec<SrtpProfile>> {
    let profile = |name| match name {
        "SRTP_AES128_CM_SHA1_80" => Some(SrtpProfile::Aes128CmSha1_80),
        "SRTP_AES128_CM_SHA1_32" => Some(SrtpProfile::Aes128CmSha1_32),
        "SRTP_AEAD_AES_128_GCM" => Some(SrtpProfile::AeadAes128Gcm),
        "SRTP_AEAD_AES_256_GCM" => Some(SrtpProfile::AeadAes256Gcm),
        _ => None,
    };
    names.split(':').map(profile).collect()
}

fn config(flags: &Flags) -> Option<Arc<Config>> {
    let identity = match (&flags.certificate, &flags.key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (pem(certificate).ok()?, pem(key).ok()?);
            Some(Arc::new(Identity::new(&certificate, &key).ok()?))
        }
        (None, None) => None,
        _ => return None,
    };
    if flags.server && identity.is_none() {
        return None;
    }
    let first = Duration::from_millis(flags.first_pause.unwrap_or(400));
    Some(Arc::new(Config {
        identity,
        versions: versions(flags)?,
        check: match (flags.asks_always, flags.asks && flags.distrusts) {
            (_, true) => PeerCheck::Fingerprint,
            (true, false) => PeerCheck::AnyCertificate,
            (false, false) => PeerCheck::Nobody,
        },
        srtp_profiles: flags.profiles.clone(),
        mtu: flags.mtu.unwrap_or(usize::MAX),
        retransmit_first: first,
        retransmit_longest: PAUSE_MAX,
        handshake_timeout: NEVER,
        cookie: false,
        receives_data: true,
    }))
}

/// Reads the first block of a PEM file.
fn pem(path: &str) -> Result<Vec<u8>, Any> {
    let text = std::fs::read_to_string(path)?;
    let (_, rest) = text.split_once("-----BEGIN ").ok_or("no PEM")?;
    let (_, rest) = rest.split_once("-----").ok_or("no PEM")?;
    let (body, _) = rest.split_once("-----END").ok_or("no PEM")?;
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for byte in body.bytes() {
        let Some(value) = ALPHABET.iter().position(|known| *known == byte) else { continue };
        bits = bits << 6 & 0xff_ffff | u32::try_from(value)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff)?);
        }
    }
    Ok(out)
}

struct Shim<'a> {
    flags: &'a Flags,
    stream: TcpStream,
    connection: Connection,
    now: Instant,
    out: Datagrams,
    /// Number of retransmitted flights since the last received packet.
    tries: u32,
    /// Reason why the connection closed.
    closed: Option<CloseReason>,
}

fn run(flags: &Flags, config: &Arc<Config>) -> Result<(), End> {
    let address = if flags.ipv6 {
        SocketAddr::from((Ipv6Addr::LOCALHOST, flags.port))
    } else {
        SocketAddr::from((Ipv4Addr::LOCALHOST, flags.port))
    };
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&flags.id.to_le_bytes())?;
    let new = if flags.server { Connection::server } else { Connection::client };
    let mut connection = new(Arc::clone(config), Seed::from_os()?);
    let (now, out) = (Instant::now(), Datagrams::new());
    // The check of the peer's certificate waits for fingerprints. If it requires one, an empty list makes it fail.
    connection.set_remote_fingerprints(now, Vec::new());
    let mut shim = Shim { flags, stream, connection, now, out, tries: 0, closed: None };
    shim.connection.start(now);
    let result = shim.serve();
    // Closing with unread bytes would reset the connection, and lose the last packets.
    let _ = shim.stream.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut shim.stream, &mut std::io::sink());
    result
}

impl Shim<'_> {
    fn serve(&mut self) -> Result<(), End> {
        loop {
            self.drain()?;
            match self.closed {
                Some(CloseReason::Local | CloseReason::Peer) => return Ok(()),
                Some(reason) => return Err(format!("{reason:?}").into()),
                None => {}
            }
            let Ok([opcode]) = self.bytes() else {
                // Once connected, the runner may simply disconnect.
                let connected = self.connection.is_connected();
                return if connected { Ok(()) } else { Err("the end of the stream".into()) };
            };
            match opcode {
                b'P' => {
                    let mut packet = vec![0; usize::try_from(u32::from_be_bytes(self.bytes()?))?];
                    self.stream.read_exact(&mut packet)?;
                    self.tries = 0;
                    self.connection.handle_datagram(self.now, &mut packet);
                }
                b'T' => {
                    let time = Duration::from_nanos(u64::from_be_bytes(self.bytes()?));
                    self.stream.write_all(b"t")?;
                    self.now += time;
                    if self.connection.poll_timeout().is_some_and(|at| at <= self.now) {
                        let before = self.connection.stats().retransmits;
                        self.connection.handle_timeout(self.now);
                        self.tries += u32::from(self.connection.stats().retransmits > before);
                    }
                    if self.tries >= TRIES {
                        return Err(format!("{:?}", CloseReason::Timeout).into());
                    }
                }
                b'E' => {
                    let expected = u64::from_be_bytes(self.bytes()?);
                    let expected = (expected != u64::MAX).then_some(Duration::from_nanos(expected));
                    let left = self.connection.poll_timeout().map(|at| at - self.now);
                    let left = left.filter(|left| *left < NEVER / 2);
                    if left != expected {
                        return Err(format!("the deadline is {left:?}, not {expected:?}").into());
                    }
                }
                b'M' => {
                    let mtu = usize::try_from(u32::from_be_bytes(self.bytes()?))?;
                    self.connection.set_mtu(mtu);
                }
                // The runner changes the initial timeout, also for the pending flight. This is not supported.
                b'U' => return Err(End::Unimplemented),
                other => return Err(format!("opcode {other}").into()),
            }
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Any> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn drain(&mut self) -> Result<(), Any> {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Connected(_) => self.connected()?,
                Event::Data(data) => {
                    let answer: Vec<u8> = data.iter().map(|byte| byte ^ 0xff).collect();
                    self.connection.send(&answer)?;
                    self.update_keys();
                }
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
        while self.connection.poll_transmit(self.now, &mut self.out) {
            for n in 0..self.out.len() {
                let packet = self.out.get(n);
                let head = [&b"P"[..], &u32::try_from(packet.len())?.to_be_bytes()].concat();
                self.stream.write_all(&[&head, packet].concat())?;
            }
            self.out.clear();
        }
        Ok(())
    }

    fn connected(&mut self) -> Result<(), Any> {
        let flags = self.flags;
        if flags.export > 0 {
            let mut material = vec![0; flags.export];
            let context = flags.export_with_context.then_some(flags.export_context.as_bytes());
            self.connection.export(&flags.export_label, context, &mut material)?;
            self.connection.send(&material)?;
        }
        if flags.writes_first {
            self.connection.send(b"hello")?;
        }
        self.update_keys();
        if flags.shuts_down {
            self.connection.close(self.now);
        }
        Ok(())
    }

    fn update_keys(&mut self) {
        if self.flags.updates_keys {
            self.connection.update_keys(self.now);
        }
    }
}
