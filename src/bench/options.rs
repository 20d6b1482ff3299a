//! The command line of `millstream bench`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::prelude::*;

use super::{FloorOptions, Target};

/// Time for which a participant of a room speaks.
const TURN: Duration = Duration::from_secs(3);

/// The role of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Connections send a clip.
    Publish,
    /// Connections read streams.
    Play,
}

impl Role {
    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Play => "play",
        }
    }
}

/// The task of `millstream bench`.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Publish, play, or both in a room.
    Load(Options),
    /// Measure this machine.
    Floor(FloorOptions),
}

impl Task {
    /// Parses the arguments after `bench`. `None` if help is requested.
    ///
    /// # Errors
    /// A message of one line.
    pub fn parse(parser: &mut lexopt::Parser) -> Result<Option<Self>, String> {
        let role = match parser.next().map_err(|error| error.to_string())? {
            Some(Value(word)) if word == "publish" => Role::Publish,
            Some(Value(word)) if word == "play" => Role::Play,
            Some(Value(word)) if word == "room" => {
                let room = Some(RoomOptions { turn: Some(TURN) });
                return Options::parse(Role::Play, room, parser).map(|options| options.map(Self::Load));
            }
            Some(Value(word)) if word == "self" => {
                return FloorOptions::parse(parser).map(|options| options.map(Self::Floor));
            }
            Some(Value(word)) => {
                return Err(format!(
                    "bench takes publish, play, room or self, not '{}'",
                    word.to_string_lossy()
                ));
            }
            Some(Long("help") | Short('h')) => return Ok(None),
            Some(other @ (Long(_) | Short(_))) => return Err(other.unexpected().to_string()),
            None => {
                return Err("bench what: publish, play, room or self? See millstream bench --help".to_owned());
            }
        };
        Options::parse(role, None, parser).map(|options| options.map(Self::Load))
    }
}

/// Options of a room, whose participants all publish into it and play it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoomOptions {
    /// Time for which each participant speaks, one after the other; `None` if nobody speaks.
    pub turn: Option<Duration>,
}

/// The media of publishers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClipOptions {
    /// File of the clip; the built-in clip if `None`.
    pub file: Option<PathBuf>,
    /// Bit rate to pad video frames to.
    pub bits_per_second: Option<u64>,
}

/// A local process whose cost is reported.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerOptions {
    /// Process id.
    pub pid: Option<u32>,
    /// Floor of this machine, in CPU seconds per gigabyte.
    pub floor: Option<f64>,
}

/// Options of a run; `docs/bench.md` explains them and lists the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Role of the connections.
    pub role: Role,
    /// URL, with `{n}` for the number of the stream.
    pub url: String,
    /// Number of connections.
    pub count: usize,
    /// Number of streams that players are spread over.
    pub streams: usize,
    /// Measured time.
    pub duration: Duration,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Connections opened per second.
    pub rate: f64,
    /// Time after which a connection that is not ready counts as failed.
    pub connect_timeout: Duration,
    /// Number of threads, each with an event loop.
    pub threads: usize,
    /// Media of publishers.
    pub clip: ClipOptions,
    /// The room, if the connections are participants of one: `count` of them, each with a connection to publish and one
    /// to play.
    pub room: Option<RoomOptions>,
    /// Process whose cost is reported.
    pub server: ServerOptions,
    /// Delay above which a unit is late.
    pub late: Duration,
    /// Maximum number of lost units that still count as success.
    pub lost_max: u64,
    /// True to accept any certificate.
    pub insecure: bool,
    /// True to print JSON instead of text.
    pub json: bool,
}

impl Options {
    fn new(role: Role) -> Self {
        Self {
            role,
            url: String::new(),
            count: 1,
            streams: 1,
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            rate: 200.0,
            connect_timeout: Duration::from_secs(10),
            threads: 1,
            clip: ClipOptions::default(),
            room: None,
            server: ServerOptions::default(),
            late: Duration::from_millis(100),
            lost_max: 0,
            insecure: false,
            json: false,
        }
    }

    /// Parses the arguments after the role or after `room`.
    fn parse(
        role: Role,
        room: Option<RoomOptions>,
        parser: &mut lexopt::Parser,
    ) -> Result<Option<Self>, String> {
        let mut options = Self { room, ..Self::new(role) };
        let mut protocol = None;
        while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
            match argument {
                Long("url") => options.url = value(parser)?,
                Long("protocol") => protocol = Some(value::<String>(parser)?),
                Long("count") => options.count = value(parser)?,
                Long("streams") => options.streams = value(parser)?,
                Long("duration") => options.duration = seconds(parser)?,
                Long("warm-up") => options.warm_up = seconds(parser)?,
                Long("rate") => options.rate = value(parser)?,
                Long("connect-timeout") => options.connect_timeout = seconds(parser)?,
                Long("threads") => options.threads = value(parser)?,
                Long("file") => options.clip.file = Some(value(parser)?),
                Long("bitrate") => options.clip.bits_per_second = Some(kilobits(parser)?),
                Long("server-pid") => options.server.pid = Some(value(parser)?),
                Long("floor") => options.server.floor = Some(value(parser)?),
                Long("turn") if options.room.is_some() => {
                    let turn = seconds(parser)?;
                    options.room = Some(RoomOptions { turn: (!turn.is_zero()).then_some(turn) });
                }
                Long("late") => options.late = Duration::from_millis(value(parser)?),
                Long("max-lost") => options.lost_max = value(parser)?,
                Long("insecure") => options.insecure = true,
                Long("json") => options.json = true,
                Long("help") | Short('h') => return Ok(None),
                Long(_) | Short(_) | Value(_) => return Err(argument.unexpected().to_string()),
            }
        }
        options.check(protocol.as_deref())?;
        Ok(Some(options))
    }

    /// Returns the number of streams that the connections are spread over.
    #[must_use]
    pub const fn stream_count(&self) -> usize {
        match self.role {
            _ if self.room.is_some() => self.count,
            Role::Publish => self.count,
            Role::Play => self.streams,
        }
    }

    /// Returns the number of connections.
    #[must_use]
    pub const fn connections(&self) -> usize {
        if self.room.is_some() { self.count.saturating_mul(2) } else { self.count }
    }

    /// Returns the role of a connection: participants of a room publish before they play.
    #[must_use]
    pub const fn role_of(&self, connection: usize) -> Role {
        if self.room.is_some() && connection < self.count { Role::Publish } else { self.role }
    }

    /// Returns the target of a connection.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn target(&self, connection: usize) -> Result<Target, String> {
        let stream = connection.checked_rem(self.stream_count()).unwrap_or(0);
        Target::parse(&self.url, stream).map_err(|error| format!("--url: {error}"))
    }

    fn check(&self, protocol: Option<&str>) -> Result<(), String> {
        if self.url.is_empty() {
            return Err("--url is missing".to_owned());
        }
        let target = self.target(0)?;
        if protocol.is_some_and(|name| name != target.protocol()) {
            return Err(format!("the URL says {}, --protocol another", target.protocol()));
        }
        let publishes = self.role == Role::Publish || self.room.is_some();
        if publishes && !target.publishes() {
            return Err(format!("{} cannot publish", target.protocol()));
        }
        if self.role == Role::Play && !target.plays() {
            return Err(format!("{} cannot play", target.protocol()));
        }
        if self.room.is_some() && !target.is_room() {
            return Err("a room needs the URL of a signalling socket, with room=NAME".to_owned());
        }
        if !publishes && self.clip != ClipOptions::default() {
            return Err("--file and --bitrate belong to publish".to_owned());
        }
        if self.count == 0 || self.streams == 0 || self.threads == 0 || self.duration.is_zero() {
            return Err("--count, --streams, --threads and --duration must be above 0".to_owned());
        }
        let ServerOptions { pid, floor } = self.server;
        if floor.is_some_and(|floor| pid.is_none() || !floor.is_finite() || floor <= 0.0) {
            return Err("--floor must be above 0, and belongs to --server-pid".to_owned());
        }
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return Err("--rate must be above 0".to_owned());
        }
        if self.stream_count() > 1 && !Target::is_numbered(&self.url) {
            return Err("several streams need {n} in the URL".to_owned());
        }
        Ok(())
    }
}

pub(super) fn value<T: FromStr>(parser: &mut lexopt::Parser) -> Result<T, String>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    parser.value().and_then(|value| value.parse()).map_err(|error| error.to_string())
}

pub(super) fn seconds(parser: &mut lexopt::Parser) -> Result<Duration, String> {
    let seconds: f64 = value(parser)?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(super) fn kilobits(parser: &mut lexopt::Parser) -> Result<u64, String> {
    let kilobits: u64 = value(parser)?;
    kilobits
        .checked_mul(1000)
        .filter(|bits| *bits < 1 << 40)
        .ok_or_else(|| "--bitrate is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        match Task::parse(&mut lexopt::Parser::from_args(line.split_whitespace()))? {
            Some(Task::Load(options)) => Ok(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_have_the_defaults_of_the_docs() {
        let options = parsed("play --url rtmp://h/live/a").unwrap();
        let docs = include_str!("../../docs/bench.md");
        let default = |name: &str| {
            let row = docs.lines().find(|line| line.starts_with(&format!("| `--{name} "))).unwrap();
            row.rsplit('|').nth(1).unwrap().trim().parse::<f64>().unwrap()
        };
        assert_eq!(options.count as f64, default("count"));
        assert_eq!(options.streams as f64, default("streams"));
        assert_eq!(options.duration.as_secs_f64(), default("duration"));
        assert_eq!(options.warm_up.as_secs_f64(), default("warm-up"));
        assert_eq!(options.rate, default("rate"));
        assert_eq!(options.connect_timeout.as_secs_f64(), default("connect-timeout"));
        assert_eq!(options.threads as f64, default("threads"));
        assert_eq!(options.late.as_millis() as f64, default("late"));
        assert_eq!(options.lost_max as f64, default("max-lost"));
        let room = parsed("room --url ws://h/a/websocket?room=r&streamId=p{n}").unwrap().room.unwrap();
        assert_eq!(room.turn.map(|turn| turn.as_secs_f64()), Some(default("turn")));
    }

    #[test]
    fn connections_are_spread_over_the_streams() {
        let play = parsed("play --url http://h:8{n}/live/s{n}.flv --count 5 --streams 2 --json").unwrap();
        assert_eq!(play.target(3).unwrap().port(), 81);
        assert!(play.json);
        let publish = parsed("publish --url rtmp://h{n}/live/s{n} --count 3 --bitrate 2500").unwrap();
        assert_eq!(publish.target(2).unwrap().host(), "h2");
        assert_eq!(publish.clip.bits_per_second, Some(2_500_000));
    }

    #[test]
    fn participants_of_a_room_publish_before_they_play() {
        let room =
            parsed("room --url ws://h/a/websocket?room=r&streamId=p{n} --count 3 --turn 0 --bitrate 500");
        let room = room.unwrap();
        let roles: Vec<Role> = (0..room.connections()).map(|connection| room.role_of(connection)).collect();
        assert_eq!(roles, [[Role::Publish; 3], [Role::Play; 3]].concat());
        assert_eq!(room.room.unwrap().turn, None);
        assert!(room.stream_count() == 3 && room.target(4).unwrap().is_room());
    }

    #[test]
    fn mistakes_are_one_line() {
        for line in [
            "",
            "dance",
            "--url rtmp://h/a/b",
            "play",
            "play --url udp://h:1",
            "play --url rtmp://h/a/b --count 0",
            "play --url rtmp://h/a/b --count x",
            "play --url rtmp://h/a/b --rate 0",
            "play --url rtmp://h/a/b --duration -1",
            "play --url rtmp://h/a/b --streams 2",
            "play --url rtmp://h/a/b --bitrate 1",
            "play --url rtmp://h/a/b --protocol flv",
            "play --url rtmp://h/a/b --floor 1",
            "play --url rtmp://h/a/b --server-pid 1 --floor 0",
            "play --url rtmp://h/a/b --hurry",
            "self --url rtmp://h/a/b",
            "play --url rtmp://h/a/b more",
            "room",
            "room --url rtmp://h/a/{n}",
            "room --url ws://h/a/websocket?streamId=p{n}",
            "room --url ws://h/a/websocket?room=r --count 2",
            "room --url ws://h/a/websocket?room=r&streamId=p{n} --turn x",
            "play --url rtmp://h/a/b --turn 1",
            "publish --url http://h/a/b.flv",
            "publish --url http://h/a/whep/b",
            "play --url http://h/a/whip/b",
            "publish --url rtmp://h/a/b --count 2",
            "publish --url rtmp://h/a/b --bitrate 99999999999999999",
        ] {
            let error = parsed(line).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{line}: {error}");
        }
    }
}
