//! SRT with other implementations: libsrt's own tool, two versions of ffmpeg, and GStreamer.
//!
//! The implementations differ in three ways. The latency is in milliseconds for libsrt's tool and GStreamer, in
//! microseconds for ffmpeg. libsrt's tool and ffmpeg 5.1 use a stream id as it is; ffmpeg 9 and GStreamer
//! percent-decode it, and GStreamer silently drops everything after a bare `#`. ffmpeg muxes everything anew that it
//! sends or records.

use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Program, ffmpeg9};

/// A program that speaks SRT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SrtTool {
    /// `srt-live-transmit`.
    Libsrt,
    /// ffmpeg as Debian packages it.
    Ffmpeg,
    Ffmpeg9,
    GStreamer,
}

/// An SRT address with options of the connection.
#[derive(Debug, Clone)]
pub struct SrtUrl {
    address: SocketAddr,
    listens: bool,
    stream_id: Option<String>,
    secret: Option<(String, u8)>,
    latency_ms: u32,
    mss: Option<u32>,
    filter: Option<String>,
    patience_ms: Option<u32>,
}

impl SrtUrl {
    /// Makes the URL of a caller of this address.
    pub const fn caller(address: SocketAddr) -> Self {
        Self {
            address,
            listens: false,
            stream_id: None,
            secret: None,
            latency_ms: 120,
            mss: None,
            filter: None,
            patience_ms: None,
        }
    }

    /// Makes the URL of a listener at this address.
    pub fn listener(address: SocketAddr) -> Self {
        Self { listens: true, ..Self::caller(address) }
    }

    pub fn stream_id(mut self, id: &str) -> Self {
        self.stream_id = Some(id.to_owned());
        self
    }

    /// Sets a passphrase, and the length of the key in bytes.
    pub fn secret(mut self, passphrase: &str, key: u8) -> Self {
        self.secret = Some((passphrase.to_owned(), key));
        self
    }

    pub const fn latency_ms(mut self, latency: u32) -> Self {
        self.latency_ms = latency;
        self
    }

    /// Sets the size of the largest packet, including the UDP and IPv4 headers, that this end announces and sends.
    pub const fn mss(mut self, bytes: u32) -> Self {
        self.mss = Some(bytes);
        self
    }

    /// Sets the packet filter. Only libsrt's own tool and ours have that option.
    pub fn filter(mut self, filter: &str) -> Self {
        self.filter = Some(filter.to_owned());
        self
    }

    /// Sets the time without a packet after which libsrt's tool gives up; 5 s by default.
    pub const fn patience_ms(mut self, patience: u32) -> Self {
        self.patience_ms = Some(patience);
        self
    }

    /// Returns the bytes of as many whole TS packets as fit into an SRT packet.
    fn chunk(&self) -> u32 {
        self.mss.map_or(1316, |bytes| (bytes - 44) / 188 * 188)
    }

    /// Returns the arguments for the crate's example `live`.
    pub fn arguments(&self) -> Vec<String> {
        let mode = if self.listens { "listener" } else { "caller" };
        let mut arguments = vec!["--mode".to_owned(), mode.to_owned(), self.address.to_string()];
        arguments.extend(["--latency".to_owned(), self.latency_ms.to_string()]);
        if let Some(id) = &self.stream_id {
            arguments.extend(["--streamid".to_owned(), id.clone()]);
        }
        if let Some((passphrase, key)) = &self.secret {
            arguments.extend(["--passphrase".to_owned(), passphrase.clone()]);
            arguments.extend(["--pbkeylen".to_owned(), key.to_string()]);
        }
        if let Some(filter) = &self.filter {
            arguments.extend(["--packetfilter".to_owned(), filter.clone()]);
        }
        arguments
    }

    /// Returns the URL in the form that this program reads.
    pub fn text(&self, tool: SrtTool) -> String {
        let mode = if self.listens { "listener" } else { "caller" };
        let is_ffmpeg = matches!(tool, SrtTool::Ffmpeg | SrtTool::Ffmpeg9);
        let latency = u64::from(self.latency_ms) * if is_ffmpeg { 1000 } else { 1 };
        let mut url = format!("srt://{}?mode={mode}&latency={latency}", self.address);
        if let Some(id) = &self.stream_id {
            let decodes = matches!(tool, SrtTool::Ffmpeg9 | SrtTool::GStreamer);
            let id = if decodes { escaped(id) } else { id.clone() };
            let _ = write!(url, "&streamid={id}");
        }
        if let Some((passphrase, key)) = &self.secret {
            let _ = write!(url, "&passphrase={passphrase}&pbkeylen={key}");
        }
        if let Some(bytes) = self.mss {
            let size = if is_ffmpeg { "payload_size" } else { "payloadsize" };
            let _ = write!(url, "&mss={bytes}&{size}={}", self.chunk());
        }
        if let Some(patience) = self.patience_ms {
            let _ = write!(url, "&peeridletimeo={patience}");
        }
        if let Some(filter) = &self.filter {
            let _ = write!(url, "&packetfilter={filter}");
        }
        url
    }
}

impl SrtTool {
    pub const ALL: [Self; 4] = [Self::Libsrt, Self::Ffmpeg, Self::Ffmpeg9, Self::GStreamer];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Libsrt => "srt-live-transmit",
            Self::Ffmpeg => "ffmpeg 5.1",
            Self::Ffmpeg9 => "ffmpeg 9",
            Self::GStreamer => "GStreamer",
        }
    }

    /// Sends a TS file in real time, once.
    pub fn send(self, file: &Path, url: &SrtUrl) -> Program {
        let text = url.text(self);
        match self {
            Self::Libsrt => {
                let mut source = reading(Path::new("ffmpeg"), file);
                source.args(["-f", "mpegts", "-"]);
                let mut sender = Command::new("srt-live-transmit");
                sender.args(["-q", "-a:no", &format!("-chunk:{}", url.chunk()), "file://con", &text]);
                Program::start_piped(&mut source, &mut sender)
            }
            Self::Ffmpeg => Program::start(reading(Path::new("ffmpeg"), file).args(["-f", "mpegts", &text])),
            Self::Ffmpeg9 => Program::start(reading(&ffmpeg9(), file).args(["-f", "mpegts", &text])),
            Self::GStreamer => {
                let mut sender = Command::new("gst-launch-1.0");
                sender.args(["-q", "filesrc", &format!("location={}", file.display()), "!"]);
                sender.args(["tsparse", "set-timestamps=true", "alignment=7", "!", "srtsink", "sync=true"]);
                Program::start(sender.arg(format!("uri={text}")))
            }
        }
    }

    /// Records the received stream into a TS file, until the program is ended.
    pub fn record(self, url: &SrtUrl, into: &Path) -> Program {
        let text = url.text(self);
        match self {
            Self::Libsrt => {
                let mut receiver = Command::new("srt-live-transmit");
                receiver.args(["-q", "-a:no", "-chunk:1316", &text, "file://con"]);
                Program::start_into(&mut receiver, File::create(into).unwrap())
            }
            Self::Ffmpeg => Program::start(writing(Path::new("ffmpeg"), &text).arg(into)),
            Self::Ffmpeg9 => Program::start(writing(&ffmpeg9(), &text).arg(into)),
            Self::GStreamer => {
                let mut receiver = Command::new("gst-launch-1.0");
                receiver.args(["-q", "srtsrc", &format!("uri={text}"), "!", "filesink"]);
                receiver.args(["buffer-mode=unbuffered", &format!("location={}", into.display())]);
                Program::start(&mut receiver)
            }
        }
    }
}

fn reading(ffmpeg: &Path, file: &Path) -> Command {
    let mut command = Command::new(ffmpeg);
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    command.args(["-map", "0", "-c", "copy"]);
    command
}

fn writing(ffmpeg: &Path, url: &str) -> Command {
    let mut command = Command::new(ffmpeg);
    // Without this option, ffmpeg 5.1 analyzes five seconds before it writes anything.
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-analyzeduration", "1000000"]);
    command.args([
        "-i",
        url,
        "-map",
        "0:v",
        "-map",
        "0:a",
        "-c",
        "copy",
        "-flush_packets",
        "1",
        "-f",
        "mpegts",
    ]);
    command
}

/// Percent-encodes every byte that has a meaning in a URL.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Returns the file of [`super::media_file`] as MPEG-TS.
pub fn ts_file(bframes: bool, seconds: u32) -> PathBuf {
    let source = super::media_file(bframes, seconds);
    let path = source.with_extension("ts");
    super::media::make_once(&path, |part| {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-i"]).arg(&source);
        command.args(["-map", "0", "-c", "copy", "-f", "mpegts"]).arg(part);
        assert!(command.stdin(Stdio::null()).status().unwrap().success(), "ffmpeg could not make a TS file");
    });
    path
}
