//! Other programs: ffmpeg, GStreamer, nginx, libsrt's tools. Dropping a value ends its process by the process id.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use media::codec::Codec;

use super::{Home, own_port, secs, wait_for};

/// A program in the background, and the program that feeds it, if there is one.
#[derive(Debug)]
pub struct Program(Child, Option<Child>);

impl Program {
    pub fn start(command: &mut Command) -> Self {
        Self::start_into(command, Stdio::null())
    }

    /// Starts a program with this standard output.
    pub fn start_into(command: &mut Command, output: impl Into<Stdio>) -> Self {
        let command = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        Self(command.spawn().unwrap(), None)
    }

    /// Starts `command` with the output of `source` as its input.
    pub fn start_piped(source: &mut Command, command: &mut Command) -> Self {
        let mut source =
            source.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = source.stdout.take().unwrap();
        let command = command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap(), Some(source))
    }

    pub fn signal(&self, signal: &str) {
        let status =
            Command::new("kill").arg(format!("-{signal}")).arg(self.0.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Publishes a file in real time, in a loop.
    pub fn ffmpeg_publish(file: &Path, url: &str) -> Self {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
        Self::start(command.arg(file).args(["-c", "copy", "-f", "flv", url]))
    }

    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for child in [Some(&mut self.0), self.1.as_mut()].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a command to its end. Returns its status, standard output and standard error.
pub fn run(command: &mut Command) -> (ExitStatus, String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status, text(output.stdout), text(output.stderr))
}

/// A packet as `-f framemd5` shows it: stream, DTS and PTS in milliseconds, size, hash.
pub type Packet = (u32, i64, i64, u64, String);

/// Returns the path of ffmpeg 9, as installed by tests/install.sh.
pub fn ffmpeg9() -> PathBuf {
    let missing = "no ffmpeg 9: run tests/install.sh";
    let entries = |folder: PathBuf| fs::read_dir(folder).expect(missing).map(|entry| entry.unwrap().path());
    let is = |path: &PathBuf, start: &str| path.file_name().unwrap().to_string_lossy().starts_with(start);
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/.venv/lib");
    let python = entries(library).find(|path| is(path, "python3")).expect(missing);
    let binaries = python.join("site-packages/imageio_ffmpeg/binaries");
    entries(binaries).find(|path| is(path, "ffmpeg-")).expect(missing)
}

/// Demuxes a URL or file with ffmpeg and hashes every packet. Times are in milliseconds, as in FLV.
pub fn frame_md5(url: &str, seconds: Option<u32>) -> Vec<Packet> {
    frame_md5_by(Path::new("ffmpeg"), &[], url, seconds)
}

/// Hashes H.264 and AAC frames independently of their container: slices only, and audio frames without a header.
pub fn unit_md5(url: &str, seconds: Option<u32>) -> Vec<Packet> {
    unit_md5_by(&[], url, seconds)
}

/// Hashes frames as [`unit_md5`] does, with options before the input.
pub fn unit_md5_by(options: &[&str], url: &str, seconds: Option<u32>) -> Vec<Packet> {
    let bare = ["-bsf:v", "h264_mp4toannexb,filter_units=remove_types=6-9", "-bsf:a", "aac_adtstoasc"];
    hash_packets(Path::new("ffmpeg"), options, url, seconds, &bare)
}

/// Hashes the frames of any codec without parameter sets and delimiters, which containers and protocols carry in
/// different places.
pub fn bare_md5_by(options: &[&str], codec: Option<Codec>, url: &str, seconds: Option<u32>) -> Vec<Packet> {
    let filter = match codec {
        Some(Codec::H264) => "h264_mp4toannexb,filter_units=remove_types=7-9",
        Some(Codec::H265) => "hevc_mp4toannexb,filter_units=remove_types=32-35",
        // Type 2 is the temporal delimiter.
        Some(Codec::Av1) => "filter_units=remove_types=2",
        _ => "null",
    };
    // ffmpeg 9 does not recognize key frames of VP9 in RTP, and would wait for one without `-copyinkf`.
    hash_packets(&ffmpeg9(), options, url, seconds, &["-bsf:v", filter, "-copyinkf:v"])
}

/// Returns the packets as [`frame_md5`] does, with another ffmpeg and with options before the input.
pub fn frame_md5_by(ffmpeg: &Path, options: &[&str], url: &str, seconds: Option<u32>) -> Vec<Packet> {
    hash_packets(ffmpeg, options, url, seconds, &[])
}

/// Hashes packets, and ends the program after `seconds` of media: ffmpeg's own `-t` counts from time 0 of the
/// stream, even if that has long been live.
fn hash_packets(
    ffmpeg: &Path,
    options: &[&str],
    url: &str,
    seconds: Option<u32>,
    filters: &[&str],
) -> Vec<Packet> {
    let mut command = Command::new(ffmpeg);
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-copyts"]).args(options);
    command.args(["-i", url, "-map", "0:v?", "-map", "0:a?", "-c", "copy", "-copyts"]);
    command.args(["-enc_time_base", "1:1000"]).args(filters).args(["-flush_packets", "1"]);
    let command = command.args(["-f", "framemd5", "-"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut program = Program(command.spawn().unwrap(), None);
    let (mut ticks, mut packets, mut first) = (Vec::new(), Vec::new(), i64::MAX);
    for line in BufReader::new(program.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        ticks.extend(ticks_per_ms(&line));
        if line.starts_with('#') {
            continue;
        }
        let packet = packet(&line, &ticks);
        first = first.min(packet.1);
        if seconds.is_some_and(|seconds| packet.1 - first >= i64::from(seconds) * 1000) {
            return packets;
        }
        packets.push(packet);
    }
    let status = program.0.wait().unwrap();
    assert!(status.success() || !packets.is_empty(), "ffmpeg: {status} of {url}");
    packets
}

/// Returns the ticks per millisecond from a line such as `#tb 0: 1/90000`. Each stream has such a line, because
/// filters keep the time base of their input.
fn ticks_per_ms(line: &str) -> Option<f64> {
    let (_, base) = line.strip_prefix("#tb ")?.split_once(": ")?;
    let (seconds, ticks) = base.trim().split_once('/')?;
    Some(ticks.parse::<f64>().ok()? / seconds.parse::<f64>().ok()? / 1000.0)
}

fn packet(line: &str, ticks: &[f64]) -> Packet {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let number = |index: usize| fields[index].parse::<i64>().unwrap();
    let stream = u32::try_from(number(0)).unwrap();
    let ms = |index: usize| (number(index) as f64 / ticks[stream as usize]).round() as i64;
    (stream, ms(1), ms(2), u64::try_from(number(4)).unwrap(), fields[5].to_owned())
}

/// `PATH` with the folder in which Debian installs nginx; the `PATH` of a user other than root lacks it.
fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// nginx with the RTMP module, and an application `live` that accepts every stream.
#[derive(Debug)]
pub struct Nginx {
    home: Home,
    program: Option<Program>,
    pub address: SocketAddr,
}

impl Nginx {
    pub fn start() -> Self {
        let address = own_port("127.0.0.1");
        let home = Home::new();
        let text = format!(
            "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;\ndaemon off;\nmaster_process off;\nuser root;\n\
             error_log {0}/error.log info;\npid {0}/pid;\nevents {{ worker_connections 4096; }}\n\
             rtmp {{ access_log off; server {{ listen {address}; chunk_size 4096; application live {{ live on; }} }} }}\n",
            home.path().display()
        );
        fs::write(home.path().join("nginx.conf"), text).unwrap();
        let mut nginx = Self { home, program: None, address };
        nginx.resume();
        nginx
    }

    /// Starts nginx again after [`Nginx::stop`], on the same port.
    pub fn resume(&mut self) {
        let mut command = Command::new("nginx");
        command.env("PATH", path_with_sbin());
        command.arg("-p").arg(self.home.path()).arg("-c").arg(self.home.path().join("nginx.conf"));
        self.program = Some(Program::start(command.arg("-e").arg(self.home.path().join("error.log"))));
        wait_for("nginx", secs(10), || std::net::TcpStream::connect(self.address).is_ok());
    }

    pub fn stop(&mut self) {
        self.program = None;
    }

    pub fn url(&self, name: &str) -> String {
        format!("rtmp://{}/live/{name}", self.address)
    }
}

/// Returns the Python that has the packages of `tests/install.sh`.
pub fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/.venv/bin/python");
    assert!(python.exists(), "run tests/install.sh: there is no {}", python.display());
    python
}
