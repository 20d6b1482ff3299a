//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::prelude::*;
use millstream::bench::Target;

use super::peers::Peer;

/// The text that `--help` prints.
pub const USAGE: &str = "\
fanout: the server beside nginx-rtmp and a bare sending loop, in one run

  cargo bench --bench fanout -- [options]

  --protocol P       how viewers come: rtmp, flv (HTTP), flvs (HTTPS), ws, rtsp (over TCP), srt, srt-aes, whep (rtmp)
  --players N        viewers that read everything (500)
  --streams M        streams that the viewers are spread over (1)
  --seconds S        measured time of one round (10)
  --rounds R         rounds, each with every server in turn (3)
  --bitrate KBPS     of one stream, video and audio together (2500)
  --slices N         NAL units of a picture, as encoders with several threads make them (1)
  --servers LIST     millstream, millstream@W (with W workers), nginx (only RTMP), mediamtx (RTMP, RTSP, SRT, WebRTC),
                     srs, srs-realtime (RTMP, HTTP-FLV), zlmediakit (RTMP, FLV over HTTP and WebSocket, RTSP, SRT),
                     floor, floor-message, other (--other)
                     (millstream,nginx,floor,floor-message; without nginx for the others)
  --other FILE       the program of `other`: another build of millstream, with one worker
  --workers W        workers of `millstream` (1); above 1 nothing is pinned to a core
  --stalled K        viewers besides that play and never read; the bare loops are left out
  --added-latency    100 viewers of one stream: what the server adds to the bare loop
  --rest-rate        after the window another one, in which the API is asked for a broadcast all the time
  --nginx-chunk B    chunk_size of nginx (4096, its default)
  --sleep            readers sleep between reads, and the server pays for waking them
  --set KEY=VALUE    a setting of millstream, more than once
  --json             JSON to standard output; the table goes to standard error
";

/// A server to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// millstream with this number of workers.
    Millstream(u16),
    /// Another build of millstream, given by `--other`.
    Other,
    /// A server of another project.
    Peer(Peer),
    /// A bare loop with one write per video frame, which includes the waiting audio.
    Floor,
    /// A bare loop with one write per message; over WebRTC, per packet.
    FloorMessage,
}

impl Kind {
    /// Name of the server in `--servers` and in the tables.
    pub fn name(self) -> String {
        match self {
            Self::Millstream(1) => "millstream".to_owned(),
            Self::Millstream(workers) => format!("millstream@{workers}"),
            Self::Other => "other".to_owned(),
            Self::Peer(peer) => peer.name().to_owned(),
            Self::Floor => "floor".to_owned(),
            Self::FloorMessage => "floor-message".to_owned(),
        }
    }

    /// True if the server is a bare loop, which speaks no RTMP handshake and has no queue for viewers that do not read.
    pub const fn is_bare_loop(self) -> bool {
        matches!(self, Self::Floor | Self::FloorMessage)
    }
}

/// Protocol of the viewers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Rtmp,
    /// FLV over HTTP.
    Flv,
    /// FLV over HTTPS.
    Flvs,
    /// FLV over WebSocket.
    Ws,
    /// RTSP, with the packets interleaved in the connection.
    Rtsp,
    /// SRT in the clear.
    Srt,
    /// SRT with AES-128.
    SrtAes,
    /// WebRTC.
    Whep,
}

/// Passphrase of the encrypted class.
pub const PASSPHRASE: &str = "correct horse";

impl Class {
    /// Name of the protocol on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtmp => "rtmp",
            Self::Flv => "flv",
            Self::Flvs => "flvs",
            Self::Ws => "ws",
            Self::Rtsp => "rtsp",
            Self::Srt => "srt",
            Self::SrtAes => "srt-aes",
            Self::Whep => "whep",
        }
    }

    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Flvs)
    }

    /// Returns the URL that a viewer requests for a stream. The URL depends on the server.
    pub fn target(self, address: SocketAddr, stream: usize, peer: Option<Peer>) -> Result<Target, String> {
        let url = match self {
            Self::Rtmp => format!("rtmp://{address}/live/bench{stream}"),
            Self::Flv if peer == Some(Peer::ZlMediaKit) => {
                format!("http://{address}/live/bench{stream}.live.flv")
            }
            Self::Ws if peer == Some(Peer::ZlMediaKit) => {
                format!("ws://{address}/live/bench{stream}.live.flv")
            }
            Self::Flv => format!("http://{address}/live/bench{stream}.flv"),
            Self::Flvs => format!("https://{address}/live/bench{stream}.flv"),
            Self::Ws => format!("ws://{address}/live/bench{stream}.flv"),
            Self::Rtsp => format!("rtsp://{address}/live/bench{stream}?tcp"),
            Self::Whep if peer == Some(Peer::MediaMtx) => format!("http://{address}/live/bench{stream}/whep"),
            Self::Whep => format!("http://{address}/live/whep/bench{stream}"),
            Self::Srt => format!("srt://{address}?streamid=%23!::r=live/bench{stream}"),
            Self::SrtAes => {
                let key = PASSPHRASE.replace(' ', "%20");
                format!("srt://{address}?streamid=%23!::r=live/bench{stream}&passphrase={key}")
            }
        };
        Target::parse(&url, stream).map_err(|error| error.to_string())
    }

    fn parse(name: &str) -> Result<Self, String> {
        let all =
            [Self::Rtmp, Self::Flv, Self::Flvs, Self::Ws, Self::Rtsp, Self::Srt, Self::SrtAes, Self::Whep];
        let found = all.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| format!("no protocol is called '{name}'"))
    }
}

/// Settings of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    pub class: Class,
    pub players: usize,
    pub streams: usize,
    pub window: Duration,
    pub rounds: usize,
    pub bits_per_second: u64,
    pub slices: usize,
    pub servers: Vec<Kind>,
    /// The program of [`Kind::Other`].
    pub other: Option<PathBuf>,
    pub stalled: usize,
    pub nginx_chunk: usize,
    pub sleep: bool,
    pub settings: Vec<String>,
    pub rest_rate: bool,
    pub json: bool,
}

impl Options {
    /// True if the servers share core 0 and the load has core 1. Several workers need both cores.
    pub fn pinned(&self) -> bool {
        !self.servers.iter().any(|kind| matches!(kind, Kind::Millstream(workers) if *workers > 1))
    }

    /// True if the load polls without sleeping; false if the servers need the load's core.
    pub fn spins(&self) -> bool {
        self.pinned() && !self.sleep
    }
}

/// Action that the command line requests.
pub enum Command {
    Run(Box<Options>),
    Help,
    /// Runs this process as a bare loop that another process measures.
    BareLoop(Kind, Class),
}

/// Reads the arguments; the error is one line for people.
pub fn parse() -> Result<Command, String> {
    let mut parser = lexopt::Parser::from_env();
    let mut options = Options {
        class: Class::Rtmp,
        players: 500,
        streams: 1,
        window: Duration::from_secs(10),
        rounds: 3,
        bits_per_second: 2_500_000,
        slices: 1,
        servers: Vec::new(),
        other: None,
        stalled: 0,
        nginx_chunk: 4096,
        sleep: false,
        settings: Vec::new(),
        rest_rate: false,
        json: false,
    };
    let (mut servers, mut workers, mut added_latency) = (String::new(), 1, false);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Long("protocol") => options.class = Class::parse(&text(&mut parser)?)?,
            Long("rest-rate") => options.rest_rate = true,
            Long("players") => options.players = number(&mut parser)?,
            Long("streams") => options.streams = number(&mut parser)?,
            Long("seconds") => options.window = Duration::from_secs(number(&mut parser)?),
            Long("rounds") => options.rounds = number(&mut parser)?,
            Long("slices") => options.slices = number(&mut parser)?,
            Long("bitrate") => options.bits_per_second = number::<u64>(&mut parser)? * 1000,
            Long("servers") => servers = text(&mut parser)?,
            Long("other") => options.other = Some(text(&mut parser)?.into()),
            Long("workers") => workers = number(&mut parser)?,
            Long("stalled") => options.stalled = number(&mut parser)?,
            Long("nginx-chunk") => options.nginx_chunk = number(&mut parser)?,
            Long("set") => options.settings.push(text(&mut parser)?),
            Long("added-latency") => added_latency = true,
            Long("sleep") => options.sleep = true,
            Long("json") => options.json = true,
            Long("bare-loop") => {
                let name = text(&mut parser)?;
                let class = Class::parse(&text(&mut parser)?)?;
                return Ok(Command::BareLoop(kind(&name, 1)?, class));
            }
            // Cargo passes this argument to a bench.
            Long("bench") => {}
            Long("help") | Short('h') => return Ok(Command::Help),
            Long(_) | Short(_) | Value(_) => return Err(argument.unexpected().to_string()),
        }
    }
    if added_latency {
        (options.players, options.streams) = (100, 1);
    }
    let list = match (servers.as_str(), added_latency, options.class) {
        ("", true, _) => "millstream,floor",
        ("", false, Class::Rtmp) => "millstream,nginx,floor,floor-message",
        ("", false, Class::Flv | Class::Flvs | Class::Ws | Class::Rtsp | Class::Whep) => {
            "millstream,floor,floor-message"
        }
        // The bare loop does not encrypt. The cost of encryption shows in comparison with the class without it.
        ("", false, Class::Srt) => "millstream,floor",
        ("", false, Class::SrtAes) => "millstream",
        (list, _, _) => list,
    };
    options.servers = list.split(',').map(|name| kind(name, workers)).collect::<Result<_, _>>()?;
    for kind in &options.servers {
        if let Kind::Peer(peer) = kind
            && !peer.serves(options.class)
        {
            return Err(format!("{} has no viewers of {} here", peer.name(), options.class.name()));
        }
    }
    if options.servers.contains(&Kind::Other) && options.other.is_none() {
        return Err("the server 'other' needs --other FILE".to_owned());
    }
    if options.stalled > 0 {
        options.servers.retain(|kind| !kind.is_bare_loop());
    }
    if options.players == 0 || options.rounds == 0 || options.window.is_zero() {
        return Err("--players, --rounds and --seconds must be at least 1".to_owned());
    }
    options.streams = options.streams.clamp(1, options.players);
    Ok(Command::Run(Box::new(options)))
}

fn kind(name: &str, workers: u16) -> Result<Kind, String> {
    match name.split_once('@').unwrap_or((name, "")) {
        ("millstream", "") => Ok(Kind::Millstream(workers.max(1))),
        ("millstream", count) => match count.parse() {
            Ok(count) if count > 0 => Ok(Kind::Millstream(count)),
            Ok(_) | Err(_) => Err(format!("'{name}' needs a number of workers")),
        },
        ("other", "") => Ok(Kind::Other),
        ("floor", "") => Ok(Kind::Floor),
        ("floor-message", "") => Ok(Kind::FloorMessage),
        _ => {
            let peer = Peer::ALL.into_iter().find(|peer| peer.name() == name);
            peer.map(Kind::Peer).ok_or_else(|| format!("no server is called '{name}'"))
        }
    }
}

fn text(parser: &mut lexopt::Parser) -> Result<String, String> {
    parser.value().and_then(|value| value.string()).map_err(|error| error.to_string())
}

fn number<T: FromStr>(parser: &mut lexopt::Parser) -> Result<T, String>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    parser.value().and_then(|value| value.parse()).map_err(|error| error.to_string())
}
