//! A connection to the directory, and the commands and replies over it.
//!
//! All keys of a cluster have the same hash tag, `{NAME}`, and therefore belong to the same slot. A commit that affects
//! several applications is therefore atomic, and all changes have one order.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{
    Client, Connection, ConnectionAddr, ConnectionLike, ErrorKind, FromRedisValue, RedisConnectionInfo,
    RedisError, Value,
};

use super::scripts::Script;
use super::{Holder, Node, Presence, Profile, Subscribed};
use crate::store::{Key, Kind, Op};
use crate::types::{NodeId, StreamKey};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Time limit for asking one sentinel.
const SENTINEL_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum time to wait for a change.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// Maximum number of changes read at a time.
const CHANGES_AT_ONCE: usize = 500;
/// Bytes of the header before each key and value.
const HEAD_BYTES: usize = 10;

/// The address of a directory, and the names of its keys.
#[derive(Clone)]
pub struct Address {
    place: Place,
    keys: Arc<[String]>,
}

/// The location of a directory.
#[derive(Clone)]
enum Place {
    /// A fixed server.
    Server(Client),
    /// The server that sentinels currently name as the master.
    Sentinels {
        /// Sentinels, in the order in which they are asked.
        sentinels: Vec<Client>,
        /// Name of the master.
        master: String,
        /// User, password and database number of the master.
        server: RedisConnectionInfo,
    },
}

/// Scheme for sentinels.
const SENTINEL: &str = "redis+sentinel://";

impl Place {
    fn new(url: &str) -> Result<Self, RedisError> {
        let Some(rest) = url.strip_prefix(SENTINEL) else { return Ok(Self::Server(Client::open(url)?)) };
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (master, database) = path.split_once('/').unwrap_or((path, "0"));
        if hosts.is_empty() || master.is_empty() {
            return Err((ErrorKind::InvalidClientConfig, "a URL of sentinels names them and a master").into());
        }
        let at = if login.is_empty() { String::new() } else { format!("{login}@") };
        let server = Client::open(format!("redis://{at}master/{database}"))?;
        let sentinels = hosts.split(',').map(|host| Client::open(format!("redis://{}", with_port(host))));
        Ok(Self::Sentinels {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            master: master.to_owned(),
            server: server.get_connection_info().redis_settings().clone(),
        })
    }

    /// Returns a client for the server to use now.
    fn client(&self) -> Result<Client, RedisError> {
        let (sentinels, master, server) = match self {
            Self::Server(client) => return Ok(client.clone()),
            Self::Sentinels { sentinels, master, server } => (sentinels, master, server),
        };
        let mut last = (ErrorKind::MasterNameNotFoundBySentinel, "no sentinel knows the master").into();
        for sentinel in sentinels {
            match asked(sentinel, master) {
                Ok((host, port)) => {
                    let address = ConnectionAddr::Tcp(host, port);
                    let info = sentinel.get_connection_info().clone();
                    return Client::open(info.set_addr(address).set_redis_settings(server.clone()));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Asks a sentinel for the master's address.
fn asked(sentinel: &Client, master: &str) -> Result<(String, u16), RedisError> {
    let mut connection = sentinel.get_connection_with_timeout(SENTINEL_PATIENCE)?;
    connection.set_read_timeout(Some(SENTINEL_PATIENCE))?;
    redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(master).query(&mut connection)
}

/// Adds the default port of sentinels, unless the host has a port.
fn with_port(host: &str) -> String {
    if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:26379")
    }
}

/// Hides the address, which may contain a password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("keys", &self.keys.first()).finish_non_exhaustive()
    }
}

/// Indexes into the list of keys. The keys of the tables of records are at the end of the list.
const SEQ: usize = 0;
const CHANGES: usize = 1;
const CLAIMS: usize = 2;
const TOKEN: usize = 5;
const TABLES: usize = 6;

impl Address {
    /// Parses the URL of a directory (`redis://`, `rediss://`, `redis+sentinel://`); `name` is the prefix of its keys.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(url: &str, name: &str) -> Result<Self, RedisError> {
        let words = ["seq", "changes", "claims", "leases", "nodes", "token"];
        let words = words.into_iter().chain(Kind::ALL.iter().map(|kind| kind.name()));
        let keys = words.chain(["present", "epoch"]).map(|word| format!("{{{name}}}:{word}")).collect();
        Ok(Self { place: Place::new(url)?, keys })
    }

    fn key(&self, place: usize) -> &str {
        self.keys.get(place).map_or("", String::as_str)
    }

    fn table(&self, kind: Kind) -> &str {
        self.key(TABLES + usize::from(number_of(kind)))
    }

    fn present(&self) -> &str {
        self.key(TABLES + Kind::ALL.len())
    }

    fn epoch(&self) -> &str {
        self.keys.last().map_or("", String::as_str)
    }
}

/// Returns the index of a kind's table.
fn number_of(kind: Kind) -> u8 {
    let place = Kind::ALL.iter().position(|one| *one == kind).unwrap_or(0);
    u8::try_from(place).unwrap_or(0)
}

/// A change in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of the change.
    pub(super) seq: u64,
    /// Name of the process that made the change.
    pub(super) writer: String,
    pub(super) change: Change,
}

/// The content of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Records(Vec<Op>),
    Claim(StreamKey, Option<Holder>),
    Present(Presence),
    /// A change of an unknown kind. A newer server has made it.
    Unknown,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claimed {
    /// Granted under this token. `seq` is the number of the change that the claim has made.
    Granted { token: u64, seq: u64 },
    /// Refused: this node has the id.
    Taken(NodeId),
}

/// All nodes, the directory's time, and whether this process is the newest of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// False if another process has taken this node's name.
    pub is_newest: bool,
    /// The directory's time, in milliseconds.
    pub time_ms: u64,
    /// All nodes.
    pub nodes: Vec<Node>,
}

/// Fields of a hash.
type Fields = Vec<(String, String)>;

/// A connection to the directory.
pub struct Link {
    address: Address,
    connection: Connection,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects to a directory.
    ///
    /// # Errors
    /// The server does not answer in time, or is not usable as a directory.
    pub fn connect(address: &Address) -> Result<Self, RedisError> {
        let mut connection = address.place.client()?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        if matches!(address.place, Place::Sentinels { .. }) {
            // For a short time, a sentinel may still name the former master.
            let role: Vec<Value> = redis::cmd("ROLE").query(&mut connection)?;
            if role.first() != Some(&Value::BulkString(b"master".to_vec())) {
                return Err((ErrorKind::Io, "the server that the sentinel names is no master").into());
            }
        }
        Ok(Self { address: address.clone(), connection })
    }

    fn run<T: FromRedisValue>(&mut self, script: Script, arguments: &[&[u8]]) -> Result<T, RedisError> {
        let keys = &self.address.keys;
        let mut command = redis::cmd("EVAL");
        command.arg(script.text()).arg(keys.len()).arg(&keys[..]);
        for argument in arguments {
            command.arg(*argument);
        }
        command.query(&mut self.connection)
    }

    /// Returns the name of the directory's contents, which changes when the contents are lost, and the number of the
    /// last change. If there is no name yet, it is set to `made`.
    pub(super) fn state(&mut self, made: &str) -> Result<(String, u64), RedisError> {
        let epoch = self.address.epoch().to_owned();
        redis::cmd("SET").arg(&epoch).arg(made).arg("NX").exec(&mut self.connection)?;
        let found: String = redis::cmd("GET").arg(&epoch).query(&mut self.connection)?;
        let seq: Option<u64> = redis::cmd("GET").arg(self.address.key(SEQ)).query(&mut self.connection)?;
        Ok((found, seq.unwrap_or(0)))
    }

    /// Returns a number for this process that was never used before.
    pub(super) fn new_incarnation(&mut self) -> Result<u64, RedisError> {
        redis::cmd("INCR").arg(self.address.key(TOKEN)).query(&mut self.connection)
    }

    /// Reads all records of a kind, in order of their keys, and passes them to `give`.
    pub(super) fn read(&mut self, kind: Kind, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), RedisError> {
        let table = self.address.table(kind).to_owned();
        let mut names: Vec<String> = redis::cmd("HKEYS").arg(&table).query(&mut self.connection)?;
        names.sort_unstable();
        for some in names.chunks(CHANGES_AT_ONCE) {
            let values: Vec<Option<Vec<u8>>> =
                redis::cmd("HMGET").arg(&table).arg(some).query(&mut self.connection)?;
            for (name, value) in some.iter().zip(values) {
                if let (Some(key), Some(value)) = (key_of(kind, name), value) {
                    give(key, value.into());
                }
            }
        }
        Ok(())
    }

    /// Returns all claims.
    pub(super) fn claims(&mut self) -> Result<Vec<(StreamKey, Holder)>, RedisError> {
        let table = self.address.key(CLAIMS);
        let all: Vec<(String, String)> = redis::cmd("HGETALL").arg(table).query(&mut self.connection)?;
        let claim = |(name, claim): (String, String)| Some((stream_of(&name)?, holder_of(&claim)?));
        Ok(all.into_iter().filter_map(claim).collect())
    }

    /// Returns the numbers of connections that subscribers have at each node.
    pub(super) fn presences(&mut self) -> Result<Vec<Presence>, RedisError> {
        let table = self.address.present();
        let all: Vec<(String, String)> = redis::cmd("HGETALL").arg(table).query(&mut self.connection)?;
        Ok(all.iter().filter_map(|(field, value)| presence_of(field, value)).collect())
    }

    /// Reports how many connections a subscriber has at this node. Returns the number of the change.
    pub(super) fn present(&mut self, own: &Process, subscribed: &Subscribed) -> Result<u64, RedisError> {
        let Subscribed { key, subscriber, count } = subscribed;
        let field = format!("{key}\n{subscriber}\n{}", own.node);
        let value = format!("{} {count}", own.incarnation);
        let is_any = if *count > 0 { b"1" } else { b"0" };
        self.run(Script::Present, &[own.writer().as_bytes(), field.as_bytes(), value.as_bytes(), is_any])
    }

    /// Removes the numbers of subscribers' connections that earlier processes of this node have reported.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn forget_presences(&mut self, own: &Process) -> Result<(), RedisError> {
        let table = self.address.present().to_owned();
        let fields: Vec<String> = redis::cmd("HKEYS").arg(&table).query(&mut self.connection)?;
        let is_own =
            |field: &&String| field.rsplit_once('\n').is_some_and(|(_, node)| node == own.node.as_str());
        for field in fields.iter().filter(is_own) {
            redis::cmd("HDEL").arg(&table).arg(field).exec(&mut self.connection)?;
        }
        Ok(())
    }

    /// Returns some of the changes that follow the change `seq`, in order.
    pub(super) fn changes_behind(&mut self, seq: u64) -> Result<Vec<Entry>, RedisError> {
        let entries: Vec<(String, Vec<Vec<u8>>)> = redis::cmd("XRANGE")
            .arg(self.address.key(CHANGES))
            .arg(format!("({seq}-0"))
            .arg("+")
            .arg("COUNT")
            .arg(CHANGES_AT_ONCE)
            .query(&mut self.connection)?;
        Ok(entries.into_iter().filter_map(|(id, fields)| entry_of(&id, &fields)).collect())
    }

    /// Waits up to [`WAIT`] for a change after the change `seq`.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn wait(&mut self, seq: u64) -> Result<(), RedisError> {
        let _: Value = redis::cmd("XREAD")
            .arg("BLOCK")
            .arg(u64::try_from(WAIT.as_millis()).unwrap_or(1000))
            .arg("COUNT")
            .arg(1)
            .arg("STREAMS")
            .arg(self.address.key(CHANGES))
            .arg(format!("{seq}-0"))
            .query(&mut self.connection)?;
        Ok(())
    }

    /// Changes records. Returns the number of the change.
    pub(super) fn commit(&mut self, writer: &str, ops: &[Op]) -> Result<u64, RedisError> {
        self.run(Script::Commit, &[writer.as_bytes(), &encode(ops)])
    }

    /// Removes a record. Returns the number of the change, or 0 if the record does not exist.
    pub(super) fn burn(&mut self, writer: &str, key: Key) -> Result<u64, RedisError> {
        self.run(Script::Burn, &[writer.as_bytes(), &encode(&[Op::Delete(key)])])
    }

    /// Adds those of the given records that are missing.
    pub(super) fn refill(&mut self, writer: &str, ops: &[Op]) -> Result<(), RedisError> {
        let _: u64 = self.run(Script::Refill, &[writer.as_bytes(), &encode(ops)])?;
        Ok(())
    }

    /// Claims an id, with a token above `floor`. A patient claim also respects claims of nodes whose leases have
    /// expired.
    pub(super) fn claim(
        &mut self,
        own: &Process,
        key: &StreamKey,
        floor: u64,
        is_patient: bool,
    ) -> Result<Claimed, RedisError> {
        let (token, node, seq): (u64, String, u64) = self.run(
            Script::Claim,
            &[
                own.writer().as_bytes(),
                key.to_string().as_bytes(),
                own.node.as_str().as_bytes(),
                own.incarnation.to_string().as_bytes(),
                floor.to_string().as_bytes(),
                if is_patient { b"1" } else { b"0" },
            ],
        )?;
        match NodeId::new(&node).filter(|_| token == 0) {
            Some(node) => Ok(Claimed::Taken(node)),
            None => Ok(Claimed::Granted { token, seq }),
        }
    }

    /// Asserts a claim that was made before the directory went away. Returns the number of the change, or 0 if there
    /// was none.
    pub(super) fn keep(
        &mut self,
        own: &Process,
        key: &StreamKey,
        floor: u64,
        token: u64,
    ) -> Result<u64, RedisError> {
        self.run(
            Script::Keep,
            &[
                own.writer().as_bytes(),
                key.to_string().as_bytes(),
                own.node.as_str().as_bytes(),
                own.incarnation.to_string().as_bytes(),
                floor.to_string().as_bytes(),
                token.to_string().as_bytes(),
            ],
        )
    }

    /// Releases an id.
    pub(super) fn release(&mut self, own: &Process, key: &StreamKey, token: u64) -> Result<(), RedisError> {
        let _: u64 = self.run(
            Script::Release,
            &[
                own.writer().as_bytes(),
                key.to_string().as_bytes(),
                own.node.as_str().as_bytes(),
                own.incarnation.to_string().as_bytes(),
                token.to_string().as_bytes(),
            ],
        )?;
        Ok(())
    }

    /// Gives an id to another live node. Returns the number of the change, or 0 if there was none.
    pub(super) fn hand_over(
        &mut self,
        own: &Process,
        key: &StreamKey,
        (token, floor): (u64, u64),
        (node, incarnation): (&NodeId, u64),
    ) -> Result<u64, RedisError> {
        self.run(
            Script::HandOver,
            &[
                own.writer().as_bytes(),
                key.to_string().as_bytes(),
                node.as_str().as_bytes(),
                incarnation.to_string().as_bytes(),
                floor.to_string().as_bytes(),
                token.to_string().as_bytes(),
            ],
        )
    }

    /// Ends the claim of a node that is gone. Returns the number of the change, or 0 if there was none.
    pub(super) fn bury(&mut self, own: &Process, key: &StreamKey, token: u64) -> Result<u64, RedisError> {
        let (writer, name, token) = (own.writer(), key.to_string(), token.to_string());
        self.run(Script::Bury, &[writer.as_bytes(), name.as_bytes(), token.as_bytes()])
    }

    /// Renews the lease of this node. Returns all nodes.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn renew(&mut self, own: &Process, lease: Duration, profile: &Profile) -> Result<Census, RedisError> {
        let (is_newest, now, leases, profiles): (u8, u64, Fields, Fields) = self.run(
            Script::Renew,
            &[
                own.writer().as_bytes(),
                own.node.as_str().as_bytes(),
                own.incarnation.to_string().as_bytes(),
                lease.as_millis().to_string().as_bytes(),
                profile.to_json().as_bytes(),
            ],
        )?;
        let node = |(name, profile): &(String, String)| {
            let lease = leases.iter().find(|(of, _)| of == name).map_or("", |(_, lease)| lease);
            let mut numbers = lease.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
            let mut next = || numbers.next().unwrap_or(0);
            let (incarnation, until, length) = (next(), next(), next());
            Some(Node {
                id: NodeId::new(name)?,
                incarnation,
                is_alive: is_valid(now, until, length),
                profile: Profile::of_json(profile),
                silent_ms: now.saturating_sub(until.saturating_sub(length)),
            })
        };
        let nodes = profiles.iter().filter_map(node).collect();
        Ok(Census { is_newest: is_newest == 1, time_ms: now, nodes })
    }

    /// Releases all claims of this node, at shutdown.
    pub(super) fn goodbye(&mut self, own: &Process) -> Result<(), RedisError> {
        let incarnation = own.incarnation.to_string();
        let arguments = [own.node.as_str().as_bytes(), own.node.as_str().as_bytes(), incarnation.as_bytes()];
        let _: u64 = self.run(Script::Goodbye, &arguments)?;
        Ok(())
    }

    /// Forgets a node that is not alive.
    pub(super) fn forget(&mut self, node: &NodeId) -> Result<(), RedisError> {
        let _: u64 = self.run(Script::Forget, &[node.as_str().as_bytes(), node.as_str().as_bytes()])?;
        Ok(())
    }

    /// True if the connection is usable.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_open()
    }
}

/// The process that uses the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Node of the process.
    pub node: NodeId,
    /// Number of the process.
    pub incarnation: u64,
}

impl Process {
    /// Returns the name under which the process writes.
    pub(super) fn writer(&self) -> String {
        format!("{} {}", self.incarnation, self.node)
    }
}

impl Profile {
    fn to_json(&self) -> String {
        serde_json::json!({
            "relay": &*self.relay,
            "http": &*self.http,
            "region": &*self.region,
            "relays": self.is_regional_relay,
            "public": &*self.public,
            "cpu": self.cpu_percent,
            "memory": self.memory_percent,
            "draining": self.is_draining,
        })
        .to_string()
    }

    /// Parses a profile. Members that are missing or have the wrong type get defaults.
    fn of_json(text: &str) -> Self {
        let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let text =
            |name: &str| value.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().into();
        let number = |name: &str| {
            let number = value.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
            u8::try_from(number).unwrap_or(u8::MAX)
        };
        let is = |name: &str| value.get(name).and_then(serde_json::Value::as_bool).unwrap_or(false);
        Self {
            relay: text("relay"),
            http: text("http"),
            region: text("region"),
            is_regional_relay: is("relays"),
            public: text("public"),
            cpu_percent: number("cpu"),
            memory_percent: number("memory"),
            is_draining: is("draining"),
        }
    }
}

/// True if a lease is valid, as in the scripts. All times are in milliseconds; `length` is 0 if unknown.
const fn is_valid(now: u64, until: u64, length: u64) -> bool {
    let left = until.saturating_sub(now);
    left > 0 && (length == 0 || left <= length.saturating_add(length / 2))
}

/// Notices when the directory's clock is set, by comparing it with the monotonic clock of this machine. After that,
/// leases of live nodes may look expired until the nodes renew them.
#[derive(Debug, Default)]
pub struct ClockWatch {
    /// The last reading of both clocks.
    last: Option<(Instant, u64)>,
}

impl ClockWatch {
    /// Notes the directory's time, in milliseconds. Returns true if its clock has gone forward or back by more than
    /// half a lease since the last call.
    pub fn has_stepped(&mut self, now: Instant, time_ms: u64, lease: Duration) -> bool {
        let Some((at, before)) = self.last.replace((now, time_ms)) else { return false };
        let passed = u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX);
        let off = before.saturating_add(passed).abs_diff(time_ms);
        u128::from(off) > lease.as_millis() / 2
    }
}

fn key_of(kind: Kind, name: &str) -> Option<Key> {
    let (app, id) = name.split_once('/')?;
    Some(Key::new(kind, app, id))
}

fn stream_of(name: &str) -> Option<StreamKey> {
    let (app, id) = name.split_once('/')?;
    Some(StreamKey::new(app, id))
}

/// Parses the number of a subscriber's connections at a node. The field has the stream, the subscriber and the node in
/// separate lines; the value has the number of the process and that of the connections.
fn presence_of(field: &str, value: &str) -> Option<Presence> {
    let (rest, node) = field.rsplit_once('\n')?;
    let (key, subscriber) = rest.split_once('\n')?;
    let (incarnation, count) = value.split_once(' ')?;
    Some(Presence {
        node: NodeId::new(node)?,
        incarnation: incarnation.parse().ok()?,
        subscribed: Subscribed {
            key: stream_of(key)?,
            subscriber: subscriber.to_owned(),
            count: count.parse().ok()?,
        },
    })
}

fn holder_of(text: &str) -> Option<Holder> {
    let mut parts = text.splitn(3, ' ');
    let (token, incarnation) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Holder { token, incarnation, node: NodeId::new(parts.next()?)? })
}

fn entry_of(id: &str, fields: &[Vec<u8>]) -> Option<Entry> {
    let seq = id.split_once('-')?.0.parse().ok()?;
    let text = |name: &str| {
        let at = fields.iter().step_by(2).position(|field| field == name.as_bytes())?;
        fields.get(at * 2 + 1)
    };
    let plain = |name: &str| String::from_utf8_lossy(text(name).map_or(&[][..], Vec::as_slice)).into_owned();
    let change = match text("t").map(Vec::as_slice) {
        Some(b"r") => Change::Records(decode(text("a")?).unwrap_or_default()),
        Some(b"p") => presence_of(&plain("a"), &plain("b")).map_or(Change::Unknown, Change::Present),
        Some(b"c") => match stream_of(&plain("a")) {
            Some(key) => Change::Claim(key, holder_of(&plain("b"))),
            None => Change::Unknown,
        },
        Some(_) | None => Change::Unknown,
    };
    Some(Entry { seq, writer: plain("w"), change })
}

/// Encodes operations for the Redis scripts, one after another. Each consists of the table (one byte), 1 for put or 0
/// for delete, the lengths of the key and of the value (32 bits each, big-endian), the key, and the value.
fn encode(ops: &[Op]) -> Vec<u8> {
    let mut out = Vec::new();
    for op in ops {
        let (key, value, put) = match op {
            Op::Put(key, value) => (key, &value[..], 1),
            Op::Delete(key) => (key, &[][..], 0),
        };
        let name = key.to_string();
        out.extend([number_of(key.kind), put]);
        out.extend(u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(name.as_bytes());
        out.extend(value);
    }
    out
}

/// Decodes operations in the form that [`encode`] makes; `None` if they are malformed.
fn decode(mut bytes: &[u8]) -> Option<Vec<Op>> {
    let mut ops = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let length = |at: usize| {
            let four: [u8; 4] = head.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(four)).ok()
        };
        let (name, rest) = rest.split_at_checked(length(2)?)?;
        let (value, rest) = rest.split_at_checked(length(6)?)?;
        let kind = *Kind::ALL.get(usize::from(*head.first()?))?;
        let key = key_of(kind, std::str::from_utf8(name).ok()?)?;
        ops.push(match head.get(1)? {
            1 => Op::Put(key, Bytes::copy_from_slice(value)),
            _ => Op::Delete(key),
        });
        bytes = rest;
    }
    Some(ops)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let key = (0..5usize, "[a-z]{0,4}", "[a-z/ä]{0,6}");
        let op = (key, proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)));
        let make = |((kind, app, id), value): ((usize, String, String), Option<Vec<u8>>)| {
            let key = Key::new(Kind::ALL[kind], &app, &id);
            value.map_or_else(|| Op::Delete(key.clone()), |value| Op::Put(key.clone(), value.into()))
        };
        proptest::collection::vec(op.prop_map(make), 0..6)
    }

    proptest! {
        #[test]
        fn operations_go_and_come_back(ops in ops()) {
            prop_assert_eq!(decode(&encode(&ops)), Some(ops));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
            let _ = entry_of(&String::from_utf8_lossy(&bytes), &[bytes.clone(), bytes.clone()]);
            let _ = holder_of(&String::from_utf8_lossy(&bytes));
            let text = String::from_utf8_lossy(&bytes);
            let _ = presence_of(&text, &text);
            let _ = Profile::of_json(&String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_runs() {
        let (lease, start) = (Duration::from_secs(10), netsim::Clock::new().now());
        let mut watch = ClockWatch::default();
        // (seconds since the start, the directory's seconds, its clock was set)
        let readings = [
            (0, 1000, false),
            (3, 1003, false),
            (8, 1013, false),
            (11, 1022, true),
            (14, 1025, false),
            (17, 1020, true),
            (77, 1080, false),
        ];
        for (at, time, is_set) in readings {
            let now = start + Duration::from_secs(at);
            assert_eq!(watch.has_stepped(now, time * 1000, lease), is_set, "after {at} s");
        }
        assert!(is_valid(1000, 1001, 10) && is_valid(1000, 1015, 10) && is_valid(1000, 9000, 0));
        assert!(!is_valid(1000, 1000, 10) && !is_valid(1000, 1016, 10));
    }

    #[test]
    fn a_profile_goes_and_comes_back_and_a_claim_has_three_parts() {
        let profile = Profile {
            relay: "h:1".into(),
            public: "https://h".into(),
            region: "eu".into(),
            is_regional_relay: true,
            cpu_percent: 7,
            is_draining: true,
            ..Profile::default()
        };
        assert_eq!(Profile::of_json(&profile.to_json()), profile);
        let node = NodeId::new("n").unwrap();
        assert_eq!(holder_of("3 2 n"), Some(Holder { token: 3, incarnation: 2, node }));
        assert_eq!((holder_of(""), holder_of("3 2"), holder_of("x 2 n")), (None, None, None));
    }
}
