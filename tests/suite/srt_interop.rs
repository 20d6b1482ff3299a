//! S-26: tests our SRT machines with libsrt, each as sender and receiver, as caller and listener, unencrypted and
//! encrypted.
//!
//! Our side is the example `live` of `proto-impl/srt`. All video and audio frames of a TS file are compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use crate::publish_play::assert_track_within;
use crate::support::{
    Home, Knock, Packet, Program, SrtTool, SrtUrl, own_port, secs, ts_file, unit_md5, wait_until_bound,
};

/// Seconds of media.
const SECONDS: u32 = 5;
/// Minimum size of a complete recording.
const ENOUGH_BYTES: u64 = 350_000;
/// Number of pairs that run at the same time. A pair mostly waits for its five seconds of media, and uses little CPU
/// time.
const AT_ONCE: usize = 8;

/// An SRT implementation at an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Tool(SrtTool),
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Tool(tool) => tool.name(),
        }
    }

    fn send(self, file: &Path, url: &SrtUrl) -> Program {
        match self {
            Self::Tool(tool) => tool.send(file, url),
            Self::Ours => {
                let mut source = Command::new("ffmpeg");
                source.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
                source.args(["-map", "0", "-c", "copy", "-f", "mpegts", "-"]);
                Program::start_piped(&mut source, &mut ours("send", url))
            }
        }
    }

    fn record(self, url: &SrtUrl, into: &Path) -> Program {
        match self {
            Self::Tool(tool) => tool.record(url, into),
            Self::Ours => Program::start_into(&mut ours("recv", url), std::fs::File::create(into).unwrap()),
        }
    }
}

fn ours(what: &str, url: &SrtUrl) -> Command {
    let mut command = Command::new(example());
    command.arg(what).args(url.arguments());
    command
}

/// Returns the path of the example, which is built first if necessary.
fn example() -> &'static Path {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLE.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(env!("CARGO_MANIFEST_DIR")).args([
            "build",
            "-q",
            "--locked",
            "-p",
            "millstream-srt",
            "--example",
            "live",
        ]);
        assert!(build.status().unwrap().success(), "the example does not build");
        Path::new(env!("CARGO_BIN_EXE_millstream")).with_file_name("examples").join("live")
    })
}

/// A connection between two implementations, and its options.
#[derive(Debug, Clone, Copy)]
struct Case {
    sender: Side,
    receiver: Side,
    sender_calls: bool,
    /// Key length in bytes.
    key: Option<u8>,
    host: &'static str,
    stream_id: &'static str,
    /// Packet filters that the sender and the receiver request. Empty for none.
    filters: [&'static str; 2],
}

impl Case {
    fn run(self, source: &[Packet]) -> Result<(), String> {
        let file = ts_file(true, SECONDS);
        let home = Home::new();
        let into = home.path().join("received.ts");
        let address = own_port(self.host);
        let complete = |url: SrtUrl| match self.key {
            Some(key) => url.secret("correct horse battery", key),
            None => url,
        };
        let listener = complete(SrtUrl::listener(address));
        let caller = complete(SrtUrl::caller(address).stream_id(self.stream_id));
        let both = if self.sender_calls { [caller, listener] } else { [listener, caller] };
        let filtered = |url: SrtUrl, filter: &str| match filter {
            "" => url,
            filter => url.latency_ms(400).filter(filter),
        };
        let [of_sender, of_receiver] = both;
        let of_sender = &filtered(of_sender, self.filters[0]);
        let of_receiver = &filtered(of_receiver, self.filters[1]);
        let start = |listens: bool| {
            // The listener starts first.
            let receiver = || self.receiver.record(of_receiver, &into);
            let sender = || self.sender.send(&file, of_sender);
            let mut first = if listens { receiver() } else { sender() };
            wait_until_bound(&mut first, address);
            let second = if listens { sender() } else { receiver() };
            if listens { (second, first) } else { (first, second) }
        };
        let (mut sender, receiver) = start(self.sender_calls);
        let length = || std::fs::metadata(&into).map_or(0, |metadata| metadata.len());
        // The sender exits at the end of its file. If it never connects, the wait ends after a limit.
        sender.wait(secs(u64::from(SECONDS) + 60));
        let before = length();
        if before < ENOUGH_BYTES {
            return Err(format!("{before} bytes came"));
        }
        drop((sender, receiver));
        let mut received = unit_md5(into.to_str().unwrap(), None);
        for track in 0..2 {
            // The last packet of each track may be incomplete, because the receiver was ended.
            let last = received.iter().rposition(|packet| packet.0 == track);
            last.into_iter().for_each(|at| drop(received.remove(at)));
        }
        let compared = std::panic::catch_unwind(|| {
            (0..2).for_each(|track| assert_track_within(1, (track, source), (track, &received)));
        });
        compared.map_err(|panic| match panic.downcast::<String>() {
            Ok(text) => text.chars().take(200).collect(),
            Err(_) => "what came differs".to_owned(),
        })
    }
}

/// Runs all cases, several at the same time, and prints a table.
fn run_all(cases: Vec<Case>) {
    let source = unit_md5(ts_file(true, SECONDS).to_str().unwrap(), None);
    // The example is built before anything is sent, because building takes longer than sending the file.
    if cases.iter().any(|case| [case.sender, case.receiver].contains(&Side::Ours)) {
        example();
    }
    let (total, cases) = (cases.len(), Mutex::new(cases.into_iter()));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().unwrap().next() else { return };
                    let outcome = case.run(&source);
                    let caller = if case.sender_calls { "sender" } else { "receiver" };
                    let key = case.key.map(|key| format!("AES-{}", u32::from(key) * 8));
                    println!(
                        "| {} | {} | {caller} | {} | {} | {} | {} |",
                        case.sender.name(),
                        case.receiver.name(),
                        key.as_deref().unwrap_or("clear"),
                        if case.host == "::1" { "IPv6" } else { "IPv4" },
                        case.stream_id,
                        outcome.as_ref().err().map_or("passed", String::as_str)
                    );
                    if let Err(error) = outcome {
                        failed.lock().unwrap().push(format!("{case:?}: {error}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {total} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Key lengths, hosts and stream ids. Each entry is used with both roles.
const MANNERS: [(Option<u8>, &str, &str); 4] = [
    (None, "127.0.0.1", "live/plain"),
    (Some(16), "127.0.0.1", "#!::r=live/standard,m=publish"),
    (Some(24), "::1", "live/with,token=abc"),
    (Some(32), "::1", "publish:live/three"),
];

fn cases(pairs: &[(Side, Side)], manners: impl Fn(usize) -> Vec<usize>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (sender, receiver) in pairs {
        for sender_calls in [true, false] {
            for manner in manners(cases.len()) {
                let (key, host, stream_id) = MANNERS[manner];
                let (sender, receiver) = (*sender, *receiver);
                cases.push(Case { sender, receiver, sender_calls, key, host, stream_id, filters: [""; 2] });
            }
        }
    }
    cases
}

/// Connects the tools with each other, to tell failures of the tools from failures of our machines. Each tool sends and
/// receives, calls and listens.
#[test]
fn s_26_the_tools_understand_each_other() {
    use SrtTool::{Ffmpeg, Ffmpeg9, GStreamer, Libsrt};
    let pairs = [(Libsrt, Ffmpeg), (Ffmpeg, GStreamer), (GStreamer, Ffmpeg9), (Ffmpeg9, Libsrt)];
    let pairs = pairs.map(|(sender, receiver)| (Side::Tool(sender), Side::Tool(receiver)));
    run_all(cases(&pairs, |number| vec![number % MANNERS.len()]));
}

/// Connects our machines with each tool, in both directions and both roles, with all entries of `MANNERS`.
#[test]
fn s_26_our_machines_understand_every_tool() {
    let of_tool = |tool| [(Side::Tool(tool), Side::Ours), (Side::Ours, Side::Tool(tool))];
    let pairs = SrtTool::ALL.map(of_tool).concat();
    run_all(cases(&pairs, |_| (0..MANNERS.len()).collect()));
    run_all(cases(&[(Side::Ours, Side::Ours)], |_| (0..MANNERS.len()).collect()));
}

/// Checks packet filters that one side requests, or that both request in part, in both directions and roles,
/// unencrypted and encrypted.
#[test]
fn x_7_libsrt_and_our_machines_agree_on_packet_filters() {
    let (ours, libsrt) = (Side::Ours, Side::Tool(SrtTool::Libsrt));
    let mut all = cases(&[(libsrt, ours), (ours, libsrt)], |number| vec![number / 2 % 2, 2]);
    let filters = [
        ["fec,cols:5,rows:4,layout:even", "fec"],
        ["fec", "fec,cols:5,rows:4,layout:staircase,arq:always"],
        ["fec,cols:8,arq:never", "fec,cols:8"],
        ["fec,cols:4", "fec,rows:-4,layout:staircase"],
    ];
    for (number, case) in all.iter_mut().enumerate() {
        case.filters = filters[number % filters.len()];
    }
    run_all(all);
}

/// Checks the handshake of [`Knock`] with libsrt, which accepts valid handshakes and refuses others.
#[test]
fn s_22_libsrt_answers_a_handshake_made_by_hand() {
    let home = Home::new();
    let listen = |address, url: SrtUrl| {
        let mut program = SrtTool::Libsrt.record(&url, &home.path().join("nothing.ts"));
        wait_until_bound(&mut program, address);
        program
    };
    let address = own_port("127.0.0.1");
    let _open = listen(address, SrtUrl::listener(address));
    assert_eq!(Knock::new("live/x").connect(address), Ok(()));
    let address = own_port("::1");
    let _closed = listen(address, SrtUrl::listener(address).secret("correct horse battery", 16));
    assert_eq!(Knock::new("live/x").connect(address), Err(11));
    assert_eq!(Knock::with_wrong_key("live/x").connect(address), Err(10));
}
