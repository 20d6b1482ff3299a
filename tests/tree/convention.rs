//! The convention of all machines of `proto-impl` (docs/crates.md), checked by their public methods. And one dependency
//! is enough: a crate re-exports the names of other crates that stand in its signatures.

use std::collections::{BTreeMap, BTreeSet};

use crate::code;
use crate::source::File;

/// The form of a machine's input and output.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Carrier {
    Bytes,
    Datagrams,
}

use Carrier::{Bytes, Datagrams};

/// The machines: crate, type, carrier.
const MACHINES: [(&str, &str, Carrier); 17] = [
    ("rtmp", "Server", Bytes),
    ("rtmp", "Client", Bytes),
    ("rtsp", "Server", Bytes),
    ("rtsp", "Client", Bytes),
    ("http1", "Connection", Bytes),
    ("http1", "WebSocket", Bytes),
    ("http2", "Connection", Bytes),
    ("relay", "Server", Bytes),
    ("relay", "Client", Bytes),
    ("relay", "CallClient", Bytes),
    ("srt", "Connection", Datagrams),
    ("dtls", "Connection", Datagrams),
    ("ice", "LiteAgent", Datagrams),
    ("ice", "Agent", Datagrams),
    ("sctp", "Association", Datagrams),
    ("turn", "Allocation", Datagrams),
    ("webrtc", "Peer", Datagrams),
];

/// Deviations: the method, its signature, the reason. This list only becomes shorter.
#[rustfmt::skip]
const EXCEPTIONS: [(&str, &str, &str); 23] = [
    ("dtls::Connection::client", "(config: Arc<Config>, seed: Seed) -> Self", START),
    ("dtls::Connection::server", "(config: Arc<Config>, seed: Seed) -> Self", START),
    ("dtls::Connection::server_with_cookie", "(config: Arc<Config>, seed: Seed) -> Self", START),
    ("http1::Connection::handle_timeout", "(&mut self, now: Instant) -> Result<(), Error>", FATAL),
    ("http1::WebSocket::handle_bytes", "(&mut self, now: Instant, bytes: &[u8])", "the peer is told of a violation by a close frame"),
    ("http1::WebSocket::handle_timeout", "(&mut self, now: Instant) -> Result<(), Error>", FATAL),
    ("http2::Connection::handle_timeout", "(&mut self, now: Instant) -> Result<(), Error>", FATAL),
    ("http2::Connection::poll_transmit", "(&mut self, now: Instant, out: &mut SendQueue) -> bool", "DATA frames are made as they leave, and who does not take them is timed"),
    ("ice::Agent::poll_transmit", "(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit>", PATH),
    ("ice::LiteAgent::poll_transmit", "(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit>", PATH),
    ("relay::CallClient::close", "-", FEED),
    ("relay::CallClient::handle_timeout", "(&mut self, now: Instant) -> Result<(), Error>", FATAL),
    ("relay::CallClient::new", "(cluster: &str, call: &Call, until: Instant) -> Option<Self>", "a call has a deadline instead of a beginning"),
    ("relay::CallClient::stats", "-", FEED),
    ("relay::Client::close", "-", FEED),
    ("relay::Client::handle_timeout", "(&mut self, now: Instant) -> Result<(), Error>", FATAL),
    ("relay::Client::stats", "-", FEED),
    ("relay::Server::close", "-", FEED),
    ("relay::Server::handle_timeout", "(&mut self, now: Instant) -> Result<(), Error>", FATAL),
    ("relay::Server::stats", "-", FEED),
    ("sctp::Association::poll_transmit", "(&mut self, now: Instant, out: &mut Vec<u8>) -> bool", "a packet becomes a record of DTLS, and each has its own buffer"),
    ("turn::Allocation::poll_transmit", "(&mut self, out: &mut Vec<u8>) -> Option<Transmit>", "datagrams of one allocation go to its client and to peers, one by one"),
    ("webrtc::Peer::poll_transmit", "(&mut self, now: Instant, log: impl Fn(SectionId) -> Option<&'l PacketLog>, out: &mut Datagrams) -> Option<Path>", "a batch has a path, and lost packets are in logs that viewers share"),
];

/// Reasons that several have.
const START: &str = "nothing is timed before `start`, which has the time";
const FATAL: &str = "a peer that was silent for too long has failed: there is no event for that";
const PATH: &str = "checks go by several paths, one by one";
const FEED: &str = "the connection between nodes ends with its transport, and the hub counts what comes";

/// Names of other crates in signatures that the crate does not re-export, and the reason. This list only becomes
/// shorter.
const MISSING: [(&str, &str, &str); 2] = [
    ("http2", "Bytes", "its users have bytes already"),
    ("http2", "SendQueue", "its users have wire already"),
];

/// The files of a crate's `src`.
fn of_crate<'a>(files: &'a [File], name: &str) -> impl Iterator<Item = &'a File> {
    let folder = format!("proto-impl/{name}/src/");
    files.iter().filter(move |file| file.path.starts_with(&folder))
}

/// A signature without line breaks, doubled spaces, last commas, and the underscores of names that are not used.
fn tidy(signature: &str) -> String {
    let one_line = signature.split_whitespace().collect::<Vec<_>>().join(" ");
    one_line
        .replace("( ", "(")
        .replace(", )", ")")
        .replace("mut self, _", "mut self, ")
        .replace("(_now", "(now")
}

/// The public functions in `body`, with their signatures from the parenthesis on.
fn functions(body: &str) -> impl Iterator<Item = (&str, String)> {
    code::words(body, "fn ").filter_map(move |at| {
        let line = body[..at].rsplit('\n').next()?.trim();
        if !matches!(line, "pub" | "pub const") {
            return None;
        }
        let rest = &body[at + "fn ".len()..];
        let name = code::word(rest);
        let generic = &rest[name.len()..];
        let open = generic.find('(')?;
        let end = generic.find(['{', ';'])?;
        Some((name, tidy(&generic[open..end])))
    })
}

/// The public methods of a type, from all its `impl` blocks.
fn methods(files: &[File], krate: &str, name: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // A handshake of RTMP has a `Server` and a `Client` of its own.
    for file in of_crate(files, krate).filter(|file| !file.path.contains("/handshake/")) {
        for at in code::words(&file.text, "impl") {
            let head = &file.text[at + "impl".len()..];
            let Some(open) = head.find('{') else { continue };
            let of = head[..open].trim();
            let of = if of.starts_with('<') { of.split_once("> ").map_or("", |(_, of)| of) } else { of };
            if code::word(of) == name && !of.contains(" for ") {
                let body = code::block(&head[open..]);
                found.extend(functions(body).map(|(name, signature)| (name.to_owned(), signature)));
            }
        }
    }
    found
}

/// The parameters of a signature.
fn parameters(signature: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0usize, 1, Vec::new());
    for (at, c) in signature.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ',' if depth == 1 => {
                found.push(signature[begin..at].trim());
                begin = at + 1;
            }
            ')' if depth == 1 => {
                found.push(signature[begin..at].trim());
                return found;
            }
            ')' | ']' => depth -= 1,
            '>' if !signature[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
    }
    found
}

/// True if a signature makes a value of the type itself.
fn is_constructor(signature: &str) -> bool {
    !signature.contains("self")
        && signature.split_once("-> ").is_some_and(|(_, result)| result.contains("Self"))
}

/// The time first, a seed last.
fn constructs(signature: &str) -> bool {
    let parameters = parameters(signature);
    let seed = parameters.iter().position(|parameter| parameter.ends_with("Seed"));
    parameters.first() == Some(&"now: Instant") && seed.is_none_or(|at| at + 1 == parameters.len())
}

/// True if the method of that name has the convention's form.
fn conforms(method: &str, carrier: Carrier, signature: &str) -> bool {
    let has_result = signature.contains("->");
    match method {
        "handle_bytes" => signature == "(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error>",
        "handle_datagram" => {
            let last = parameters(signature).pop().unwrap_or_default().to_owned();
            signature.starts_with("(&mut self, now: Instant, ")
                && (last.ends_with(": &[u8]") || last.ends_with(": &mut [u8]"))
                && !has_result
        }
        "handle_timeout" => signature == "(&mut self, now: Instant)",
        "poll_event" => signature.starts_with("(&mut self) -> Option<") && signature.ends_with("Event>"),
        "poll_transmit" => match carrier {
            Bytes => signature == "(&mut self, out: &mut SendQueue) -> bool",
            Datagrams => signature == "(&mut self, now: Instant, out: &mut Datagrams) -> bool",
        },
        "poll_timeout" => signature == "(&self) -> Option<Instant>",
        "close" => signature.starts_with("(&mut self, now: Instant") && !has_result,
        "stats" => signature == "(&self) -> Stats",
        _ => unreachable!("{method} is not in the convention"),
    }
}

/// The methods that a machine has.
fn expected(carrier: Carrier) -> [&'static str; 7] {
    let input = if carrier == Bytes { "handle_bytes" } else { "handle_datagram" };
    [input, "handle_timeout", "poll_event", "poll_transmit", "poll_timeout", "close", "stats"]
}

/// The methods that deviate, each with its signature, or `-` where there is none.
fn deviations() -> BTreeMap<String, String> {
    let files = code::crates();
    let mut found = BTreeMap::new();
    for (krate, name, carrier) in MACHINES {
        let methods = methods(&files, krate, name);
        let constructors: Vec<_> =
            methods.iter().filter(|(_, signature)| is_constructor(signature)).collect();
        assert!(!constructors.is_empty() && methods.len() > 5, "{krate}::{name} was not read: {methods:?}");
        for (method, signature) in constructors {
            if !constructs(signature) {
                found.insert(format!("{krate}::{name}::{method}"), signature.clone());
            }
        }
        for method in expected(carrier) {
            let signature = methods.get(method).map_or("-", String::as_str);
            if signature == "-" || !conforms(method, carrier, signature) {
                found.insert(format!("{krate}::{name}::{method}"), signature.to_owned());
            }
        }
    }
    found
}

#[test]
fn machines_keep_the_convention_but_the_listed() {
    let found = deviations();
    let listed: BTreeMap<String, String> = EXCEPTIONS
        .iter()
        .map(|(method, signature, _)| ((*method).to_owned(), (*signature).to_owned()))
        .collect();
    let new = found.iter().filter(|(method, signature)| listed.get(*method) != Some(signature));
    let new =
        new.map(|(method, signature)| format!("(\"{method}\", \"{signature}\", \"\"), // not listed so"));
    let gone = listed.keys().filter(|method| !found.contains_key(*method));
    let gone = gone.map(|method| format!("{method} keeps the convention now: take it off the list"));
    let faults: Vec<String> = new.chain(gone).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The crates of the workspace whose names are used in signatures of others.
const LENDERS: [&str; 10] = ["bytes", "crypto", "dtls", "flv", "ice", "media", "rtp", "sctp", "sdp", "wire"];

/// The names that a file takes from other crates: each with the crate that it comes from.
fn borrowed(text: &str) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    for statement in text.split(';') {
        let Some((_, path)) = statement.rsplit_once("use ") else { continue };
        let Some(lender) = LENDERS.into_iter().find(|lender| path.starts_with(&format!("{lender}::"))) else {
            continue;
        };
        let names = path.split(['{', '}', ',', ':']).map(str::trim).filter(|name| !name.is_empty());
        for name in names.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase())) {
            found.insert(name.split(" as ").last().unwrap_or(name).to_owned(), lender);
        }
    }
    found
}

/// The public signatures and fields of a file.
fn public_text(text: &str) -> String {
    let mut found = String::new();
    for at in code::words(text, "pub ") {
        let rest = &text[at..];
        let end = rest.find(['{', ';', '=']).unwrap_or(rest.len());
        let is_field = !rest.starts_with("pub fn") && !rest.starts_with("pub const fn");
        let end = if is_field { rest.find([',', '{', ';', '=', '\n']).unwrap_or(end) } else { end };
        if !rest.starts_with("pub use") {
            found.push_str(&rest[..end]);
            found.push('\n');
        }
    }
    found
}

#[test]
fn one_dependency_is_enough_for_what_stands_in_signatures() {
    let files = code::crates();
    let crates: BTreeSet<&str> = files.iter().filter_map(|file| file.path.split('/').nth(1)).collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for krate in crates {
        let lib = of_crate(&files, krate).find(|file| file.path.ends_with("/src/lib.rs")).unwrap();
        let uses: Vec<&str> = lib.text.split(';').filter(|part| part.contains("pub use ")).collect();
        let gives = |name: &str| uses.iter().any(|part| code::words(part, name).next().is_some());
        let mut wanted = BTreeSet::new();
        for file in of_crate(&files, krate) {
            let public = public_text(&file.text);
            let names = borrowed(&file.text).into_iter();
            wanted.extend(names.filter(|(name, _)| code::words(&public, name).next().is_some()));
            let is_named = |lender: &&str| code::words(&public, &format!("{lender}::")).next().is_some();
            wanted.extend(LENDERS.into_iter().filter(is_named).map(|lender| (lender.to_owned(), lender)));
        }
        seen += wanted.len();
        for (name, lender) in wanted {
            let is_listed = MISSING.iter().any(|(of, missing, _)| *of == krate && *missing == name);
            if (gives(&name) || gives(lender)) == is_listed {
                faults.push(format!(
                    "{krate}: {name} of {lender}: {}",
                    if is_listed { "take it off the list" } else { "is not re-exported" }
                ));
            }
        }
    }
    assert!(seen > 20, "the sources were not read: {seen} names");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
