//! Records in Redis. They are read from a running server or from its RDB file. Each map of Ant Media Server is one
//! Redisson hash.
//!
//! Redisson encodes strings with a codec: Kryo since 3.19, JBoss Marshalling before that, or plain text or JSON if so
//! configured. Strings in other encodings are reported and skipped.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sources::{Gather, Record};
use super::{mapdb, rdb};
use crate::store::Kind;

/// Hashes of an application. Each row has the suffix of the database's name, and the kind of its records.
const OF_APPS: [(&str, Kind); 4] = [
    ("Broadcasts", Kind::Broadcast),
    ("Vods", Kind::Vod),
    ("Tokens", Kind::Token),
    ("Subscribers", Kind::Subscriber),
];
/// Hash of the users.
const USERS: &str = "users";
/// Default port of Redis.
const PORT: u16 = 6379;
/// Time limit for answers of the server.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 8 << 20;
/// Longest line of the protocol, in bytes.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// Maximum number of values in one list.
const VALUES_MAX: usize = 100_000;
/// Maximum number of bytes, and of values, in one answer.
const ANSWER_MAX: usize = 256 << 20;
/// Number of entries requested at a time.
const AT_ONCE: &str = "200";
/// Maximum number of faults reported for one hash.
const FAULTS_MAX: usize = 1000;

/// A source of records in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisSource {
    /// A running server.
    Server(Address),
    /// An RDB file.
    File(PathBuf),
}

impl RedisSource {
    /// Parses `redis://...` or the path of a file.
    ///
    /// # Errors
    /// The text has another form. The error states the forms that are expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("must be redis://HOST or the path of an RDB file".to_owned()),
            url if url.contains("://") => Address::parse(url).map(Self::Server),
            path => Ok(Self::File(path.into())),
        }
    }
}

/// The address of a Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    user: String,
    password: String,
    database: u32,
}

/// Hides the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis://{}:{}/{}", self.host, self.port, self.database)
    }
}

impl Address {
    /// Parses `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.
    ///
    /// # Errors
    /// The text has another form. The error states the form that is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || "must be redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]".to_owned();
        let url = url::Url::parse(text).map_err(|_| bad())?;
        if url.scheme() != "redis" {
            return Err(bad());
        }
        let decoded = |text: &str| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8()
                .map(|text| text.into_owned())
                .map_err(|_| bad())
        };
        let database = match url.path().trim_matches('/') {
            "" => 0,
            number => number.parse().map_err(|_| bad())?,
        };
        Ok(Self {
            host: url.host_str().filter(|host| !host.is_empty()).ok_or_else(bad)?.to_owned(),
            port: url.port().unwrap_or(PORT),
            user: decoded(url.username())?,
            password: decoded(url.password().unwrap_or_default())?,
            database,
        })
    }
}

/// Reads the records in the database of an application or, if `database` is `None`, the users.
pub(super) fn read(source: &RedisSource, database: Option<&str>, gather: &mut Gather<'_>) {
    let hashes: Vec<(String, Kind)> = match database {
        Some(name) => OF_APPS.iter().map(|(end, kind)| (format!("{name}{end}"), *kind)).collect(),
        None => vec![(USERS.to_owned(), Kind::User)],
    };
    match source {
        RedisSource::Server(address) => read_server(address, hashes, gather),
        RedisSource::File(path) => read_file(path, &hashes, gather),
    }
}

fn read_server(address: &Address, hashes: Vec<(String, Kind)>, gather: &mut Gather<'_>) {
    let mut connection = match Connection::open(address) {
        Ok(connection) => connection,
        Err(error) => return gather.fault(Path::new(&format!("{address:?}")), &error.to_string()),
    };
    for (hash, kind) in hashes {
        let mut faults = Vec::new();
        let read = connection.values(&hash, |value| take(kind, value, gather, &mut faults));
        faults.extend(read.err().map(|error| error.to_string()));
        faults.iter().for_each(|fault| gather.fault(Path::new(&hash), fault));
    }
}

/// Reads a file. If several databases have a hash of the same name, only the first one is used.
fn read_file(path: &Path, hashes: &[(String, Kind)], gather: &mut Gather<'_>) {
    let names: Vec<String> = hashes.iter().map(|(name, _)| name.clone()).collect();
    let mut databases: Vec<Option<u64>> = vec![None; hashes.len()];
    let mut faults: Vec<(usize, String)> = Vec::new();
    let mut others = BTreeSet::new();
    let mut give = |found: rdb::Found, value: &[u8]| {
        let (Some((_, kind)), Some(first)) = (hashes.get(found.wanted), databases.get_mut(found.wanted))
        else {
            return false;
        };
        if *first.get_or_insert(found.database) != found.database {
            others.insert((found.wanted, found.database));
            return others.len() < FAULTS_MAX;
        }
        let mut told = Vec::new();
        let goes_on = take(*kind, value, gather, &mut told);
        faults.extend(told.into_iter().map(|fault| (found.wanted, fault)));
        goes_on && faults.len() < FAULTS_MAX
    };
    let read = regular_file(path).and_then(|file| rdb::values(file, &names, &mut give));
    let of_others = others.into_iter().map(|(at, database)| {
        (at, format!("database {database} has one of this name, too, which is left out"))
    });
    for (at, fault) in faults.into_iter().chain(of_others) {
        let name = names.get(at).map_or("", String::as_str);
        gather.fault(Path::new(name), &fault);
    }
    if let Err(error) = read {
        gather.fault(path, &error.to_string());
    }
}

/// Opens a regular file. A pipe is refused, because it might never end.
fn regular_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is not a regular file")) }
}

/// Takes a value of a hash. Returns false if no more values are wanted.
fn take(kind: Kind, value: &[u8], gather: &mut Gather<'_>, faults: &mut Vec<String>) -> bool {
    match text(value).and_then(|text| mapdb::object(&text)) {
        Ok(record) => return gather.give(Record { kind, record }),
        Err(reason) => faults.push(reason),
    }
    faults.len() < FAULTS_MAX
}

/// A connection that uses RESP 2.
struct Connection<S>(BufReader<S>);

/// An answer of the server.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Bytes(Vec<u8>),
    List(Vec<Self>),
}

impl Connection<TcpStream> {
    fn open(address: &Address) -> io::Result<Self> {
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for resolved in (address.host.trim_matches(['[', ']']), address.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&resolved, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    let mut connection = Self(BufReader::new(stream));
                    connection.enter(address)?;
                    return Ok(connection);
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

impl<S: Read + Write> Connection<S> {
    fn enter(&mut self, address: &Address) -> io::Result<()> {
        if !address.password.is_empty() {
            let words = [&b"AUTH"[..], address.user.as_bytes(), address.password.as_bytes()];
            self.ask(words.into_iter().filter(|word| !word.is_empty()))?;
        }
        if address.database != 0 {
            self.ask([&b"SELECT"[..], address.database.to_string().as_bytes()].into_iter())?;
        }
        Ok(())
    }

    /// Passes on the values of a hash, some of them perhaps twice. Stops if `give` returns false.
    fn values(&mut self, hash: &str, mut give: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let mut cursor = b"0".to_vec();
        loop {
            let words = [&b"HSCAN"[..], hash.as_bytes(), &cursor, b"COUNT", AT_ONCE.as_bytes()];
            let Reply::List(parts) = self.ask(words.into_iter())? else { return Err(broken()) };
            let Ok([Reply::Bytes(next), Reply::List(entries)]) = <[Reply; 2]>::try_from(parts) else {
                return Err(broken());
            };
            for value in entries.iter().skip(1).step_by(2) {
                let Reply::Bytes(value) = value else { return Err(broken()) };
                if !give(value) {
                    return Ok(());
                }
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn ask<'a>(&mut self, words: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.clone().count()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend(word);
            request.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&request)?;
        self.reply(2, &mut ANSWER_MAX.clone())
    }

    /// Parses an answer. Lists may be nested up to `depth` levels, and the answer must fit into `room`.
    fn reply(&mut self, depth: usize, room: &mut usize) -> io::Result<Reply> {
        let mut line = Vec::new();
        (&mut self.0).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let line =
            std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix("\r\n")).ok_or_else(broken)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(broken)?;
        let mut count = |max: usize| {
            let count = rest.parse::<usize>().ok().filter(|count| *count <= max).ok_or_else(broken)?;
            *room = room.checked_sub(count).ok_or_else(broken)?;
            Ok::<_, io::Error>(count)
        };
        match kind {
            "+" | ":" => Ok(Reply::Bytes(rest.into())),
            "-" => Err(io::Error::other(rest.to_owned())),
            "$" => {
                let length = count(VALUE_BYTES_MAX)?;
                let mut bytes = Vec::new();
                (&mut self.0)
                    .take(u64::try_from(length).unwrap_or(0).saturating_add(2))
                    .read_to_end(&mut bytes)?;
                let whole = bytes.len() == length + 2 && bytes.ends_with(b"\r\n");
                bytes.truncate(length);
                if whole { Ok(Reply::Bytes(bytes)) } else { Err(broken()) }
            }
            "*" => {
                let inner = depth.checked_sub(1).ok_or_else(broken)?;
                let length = count(VALUES_MAX)?;
                (0..length).map(|_| self.reply(inner, room)).collect::<io::Result<_>>().map(Reply::List)
            }
            _ => Err(broken()),
        }
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server does not answer as Redis does")
}

/// Decodes text written by a codec of Redisson.
fn text(bytes: &[u8]) -> Result<String, String> {
    match bytes {
        // Kryo: the class String, then either the length in characters, or plain ASCII whose end is marked.
        [3, rest @ ..] => kryo(rest),
        // JBoss Marshalling: its version, then the length in characters in one of three forms.
        [4, 0x3e, length, rest @ ..] => java(rest, if *length == 0 { 0x100 } else { usize::from(*length) }),
        [4, 0x3f, high, low, rest @ ..] => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            java(rest, if length == 0 { 0x1_0000 } else { length })
        }
        [4, 0x40, a, b, c, d, rest @ ..] => {
            java(rest, usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX))
        }
        [b'{', ..] => std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| error.to_string()),
        [b'"', ..] => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        _ => Err("written by a codec of Redisson that is not known here".to_owned()),
    }
    .map_err(|error| error.to_string())
}

fn kryo(bytes: &[u8]) -> Result<String, String> {
    let cut = || "the text is cut off".to_owned();
    let (first, rest) = bytes.split_first().ok_or_else(cut)?;
    if first & 0x80 == 0 {
        let (last, start) = bytes.split_last().ok_or_else(cut)?;
        let is_ascii = start.is_ascii() && last & 0x80 != 0;
        let all: Vec<u8> = start.iter().copied().chain([last & 0x7f]).collect();
        return String::from_utf8(all).ok().filter(|_| is_ascii).ok_or_else(cut);
    }
    let (mut length, mut rest) = (usize::from(first & 0x3f), rest);
    let mut goes_on = first & 0x40 != 0;
    for shift in [6u32, 13, 20, 27] {
        if !goes_on {
            break;
        }
        let (byte, behind) = rest.split_first().ok_or_else(cut)?;
        length |= usize::from(byte & 0x7f) << shift;
        (goes_on, rest) = (byte & 0x80 != 0, behind);
    }
    // The encoded length is the number of characters plus 1. Zero means null.
    java(rest, length.checked_sub(1).filter(|_| !goes_on).ok_or_else(cut)?)
}

/// Decodes Java's modified UTF-8, in which surrogates are encoded separately and zero takes two bytes. Expects `length`
/// UTF-16 units.
fn java(bytes: &[u8], length: usize) -> Result<String, String> {
    let bad = || "the text is damaged".to_owned();
    let mut units: Vec<u16> = Vec::new();
    let mut rest = bytes.iter().copied().map(u16::from);
    while let Some(first) = rest.next() {
        let mut tail =
            || rest.next().filter(|byte| byte & 0xc0 == 0x80).map(|byte| byte & 0x3f).ok_or_else(bad);
        units.push(match first {
            0..0x80 => first,
            0xc0..0xe0 => (first & 0x1f) << 6 | tail()?,
            0xe0..0xf0 => (first & 0x0f) << 12 | tail()? << 6 | tail()?,
            _ => return Err(bad()),
        });
    }
    String::from_utf16(&units).ok().filter(|_| units.len() == length).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose answer is always these bytes.
    struct Says<'a>(&'a [u8], Vec<u8>);

    impl Read for Says<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Says<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn values(said: &[u8]) -> (Vec<Vec<u8>>, io::Result<()>) {
        let mut connection = Connection(BufReader::new(Says(said, Vec::new())));
        let mut found = Vec::new();
        let done = connection.values("appBroadcasts", |value| {
            found.push(value.to_vec());
            true
        });
        (found, done)
    }

    /// Bytes written to Redis by Redisson 3.27 (Kryo) and 3.16 (JBoss Marshalling).
    #[test]
    fn texts_are_read_as_redisson_writes_them() {
        let long = format!("{{\"x\":\"{}\"}}", "abcdefghij".repeat(300));
        let euro = format!("{{\"x\":\"{}\"}}", "a\u{fc}cde\u{20ac}ghij".repeat(30));
        let huge = format!("{{\"x\":\"\u{1f600}{}\"}}", "abcdefghij".repeat(7000));
        // The surrogate pair of the emoji as Java writes it: each half is encoded separately.
        let halves =
            [&b"{\"x\":\"\xed\xa0\xbd\xed\xb8\x80"[..], "abcdefghij".repeat(7000).as_bytes(), b"\"}"]
                .concat();
        let behind = |head: &[u8], text: &[u8]| [head, text].concat();
        for (bytes, want) in [
            (b"\x03{\"streamId\":\"s1\"\xfd".to_vec(), "{\"streamId\":\"s1\"}"),
            (b"\x03{\xfd".to_vec(), "{}"),
            (b"\x03\x82u".to_vec(), "u"),
            (
                behind(b"\x03\x93", "{\"name\":\"Gr\u{fc}\u{df}e \u{20ac}\"}".as_bytes()),
                "{\"name\":\"Gr\u{fc}\u{df}e \u{20ac}\"}",
            ),
            (behind(b"\x03\xc1\x2f", long.as_bytes()), &long),
            (behind(b"\x03\xf5\x04", euro.as_bytes()), &euro),
            (behind(b"\x03\xfb\xc5\x08", &halves), &huge),
            (behind(b"\x04\x3e\x02", b"{}"), "{}"),
            (behind(b"\x04\x3e\x11", b"{\"streamId\":\"s1\"}"), "{\"streamId\":\"s1\"}"),
            (behind(b"\x04\x3f\x0b\xc0", long.as_bytes()), &long),
            (behind(b"\x04\x3f\x01\x34", euro.as_bytes()), &euro),
            (behind(b"\x04\x40\x00\x01\x11\x7a", &halves), &huge),
            (b"{}".to_vec(), "{}"),
            (b"\"{\\\"a\\\":1}\"".to_vec(), "{\"a\":1}"),
        ] {
            assert_eq!(text(&bytes).as_deref(), Ok(want));
        }
        for bytes in [
            &b""[..],
            b"\x00x",
            b"\x03",
            b"\x03\x93{",
            b"\x04\x3e\x09{}",
            b"\x03\xff\xff\xff\xff\xff",
            b"\x03\x80",
        ] {
            assert!(text(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_hash_is_read_to_its_end() {
        let first = b"*2\r\n$2\r\n17\r\n*4\r\n$1\r\na\r\n$2\r\nxy\r\n$1\r\nb\r\n$0\r\n\r\n";
        let last = b"*2\r\n$1\r\n0\r\n*2\r\n$1\r\nc\r\n$1\r\nz\r\n";
        let (found, done) = values(&[&first[..], last].concat());
        done.unwrap();
        assert_eq!(found, [&b"xy"[..], b"", b"z"]);
        let (_, refused) = values(b"-NOAUTH Authentication required.\r\n");
        assert_eq!(refused.unwrap_err().to_string(), "NOAUTH Authentication required.");
    }

    #[test]
    fn c_19_no_answer_of_a_redis_is_trusted() {
        for said in [
            &b"*2\r\n$1\r\n0\r\n*99999999\r\n"[..],
            b"$999999999999\r\n",
            b"*1\r\n*1\r\n*1\r\n*0\r\n",
            b"$-1\r\n",
            b"*2\r\n$1\r\n0\r\n$5\r\nab\r\n",
            b"",
        ] {
            assert!(values(said).1.is_err(), "{said:?}");
        }
        proptest::proptest!(|(bytes: Vec<u8>)| {
            let _ = (values(&bytes), text(&bytes));
        });
    }

    #[test]
    fn a_source_is_a_server_or_a_file() {
        assert_eq!(
            RedisSource::parse("/var/lib/redis/dump.rdb"),
            Ok(RedisSource::File("/var/lib/redis/dump.rdb".into()))
        );
        assert!(matches!(RedisSource::parse("redis://h"), Ok(RedisSource::Server(_))));
        assert!(RedisSource::parse("").is_err() && RedisSource::parse("rediss://h").is_err());
    }

    #[test]
    fn addresses_name_server_password_and_database() {
        let address = Address::parse("redis://:p%40ss@h.example:7000/3").unwrap();
        assert_eq!(
            (address.host.as_str(), address.port, address.password.as_str(), address.database),
            ("h.example", 7000, "p@ss", 3)
        );
        assert!(!format!("{address:?}").contains("ss@"));
        assert_eq!(Address::parse("redis://localhost").unwrap().port, PORT);
        for text in ["", "localhost:6379", "rediss://h", "http://h", "redis://h/x"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
