//! U-05: name resolution with a name server that is silent, denies that names exist, answers with a thousand addresses,
//! or changes its answer. Runs in a network namespace, in which the port of name servers is free.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::super::support::{Bystander, Home, Publisher, Server, run, secs, wait_for};

/// Environment variable of the process that runs in the network namespace.
const INSIDE: &str = "SUITE_OWN_NETWORK";
const NAME_SERVER: &str = "127.0.0.53:53";

/// Behaviour of the name server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Silent,
    Denies,
    /// Answers with this number of addresses. The last one is the given address.
    Answers(u16, Ipv4Addr),
}

/// A name server that gives the same answer for all names (RFC 1035).
#[derive(Debug, Clone)]
struct NameServer {
    manner: Arc<Mutex<Manner>>,
    asked: Arc<Mutex<u64>>,
}

impl NameServer {
    fn start() -> Self {
        let this = Self { manner: Arc::new(Mutex::new(Manner::Silent)), asked: Arc::default() };
        let socket = UdpSocket::bind(NAME_SERVER).unwrap();
        let by_datagram = this.clone();
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((bytes, from)) = socket.recv_from(&mut question) {
                // If the answer does not fit into a datagram, a truncated one makes the client ask again over TCP.
                if let Some(mut answer) = by_datagram.answer(&question[..bytes]) {
                    if answer.len() > 512 {
                        answer.truncate(bytes);
                        answer[2] |= 0x02;
                        answer[6..8].fill(0);
                    }
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        let (listener, by_stream) = (TcpListener::bind(NAME_SERVER).unwrap(), this.clone());
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| by_stream.serve(stream)));
        this
    }

    fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    fn asked(&self) -> u64 {
        *self.asked.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(secs(5))).unwrap();
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            let Ok(()) = stream.read_exact(&mut question) else { return };
            let Some(answer) = self.answer(&question) else { return };
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&length[..], &answer].concat());
        }
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        *self.asked.lock().unwrap() += 1;
        let manner = *self.manner.lock().unwrap();
        // After the header, a question consists of the name, up to its empty label, the type and the class.
        let name_end = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)? + 1;
        let is_ipv4 = question.get(name_end..name_end + 2)? == [0, 1];
        let mut answer = question.get(..name_end + 4)?.to_vec();
        answer[2] = 0x81;
        answer[3] = 0x80;
        answer[8..12].fill(0);
        match manner {
            Manner::Silent => return None,
            Manner::Denies => answer[3] |= 3,
            Manner::Answers(count, last) if is_ipv4 => {
                answer[6..8].copy_from_slice(&count.to_be_bytes());
                for number in 0..count {
                    let [high, low] = number.to_be_bytes();
                    let address = if number + 1 == count { last } else { Ipv4Addr::new(127, 9, high, low) };
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                    answer.extend(address.octets());
                }
            }
            // A question for IPv6 addresses gets an answer without addresses.
            Manner::Answers(..) => {}
        }
        Some(answer)
    }
}

/// Runs a test of this binary in its own namespaces, with our own name server.
fn run_inside(test: &str) {
    let home = Home::new();
    let file = home.path().join("resolv.conf");
    fs::write(&file, "nameserver 127.0.0.53\noptions timeout:2 attempts:3\n").unwrap();
    let script = format!(
        "ip link set lo up && mount --bind {} /etc/resolv.conf && exec \"$0\" --exact {test} --nocapture",
        file.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-rnm", "sh", "-c", &script]).arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
    let (status, out, said) = run(&mut command);
    assert!(status.success() && out.contains("1 passed"), "{out}{said}");
}

#[test]
fn u_05_whatever_a_name_server_does_others_notice_nothing() {
    if std::env::var_os(INSIDE).is_none() {
        return run_inside("process::names::u_05_whatever_a_name_server_does_others_notice_nothing");
    }
    let names = NameServer::start();
    let mut server = Server::start(&["server.workers=2"]);
    let bystander = Bystander::start(&server);
    let api = server.api();
    assert_eq!(api.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"s"}"#).status, 200);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    let url = format!("rtmp://target.example:{}/LiveApp/copy", server.rtmp.port());
    let endpoint = json!({ "rtmpUrl": url }).to_string();
    assert_eq!(api.post("/live/rest/v2/broadcasts/s/rtmp-endpoint", &endpoint).json()["success"], true);
    let status = || {
        let record = server.api().broadcast("live", "s").unwrap();
        record["endPointList"][0]["status"].as_str().unwrap_or_default().to_owned()
    };
    let arrives =
        || server.api().broadcast("LiveApp", "copy").is_some_and(|copy| copy["status"] == "broadcasting");

    // The name server is silent. The C library repeats its question, and gives up after six seconds.
    wait_for("a question", secs(20), || names.asked() > 0);
    wait_for("a failure to be told", secs(60), || status() == "failed");
    assert!(names.asked() <= 24, "{} questions", names.asked());

    let last = Ipv4Addr::LOCALHOST;
    names.behave(Manner::Answers(1, last));
    wait_for("the push to arrive", secs(90), arrives);
    let again = |manner| {
        names.behave(manner);
        let before = names.asked();
        // A push attempt that is already running may start the copy again after it was stopped.
        wait_for("another question", secs(90), || {
            if arrives() {
                server.api().post("/LiveApp/rest/v2/broadcasts/copy/stop", "");
            }
            names.asked() > before
        });
    };
    // The server connects to the known address, and resolves the name again at the same time. So it is no failure if
    // the name no longer exists.
    again(Manner::Denies);
    wait_for("the push to arrive by what is known", secs(90), arrives);
    // An attempt uses the known address, and the next attempt uses the new answer. Only one of the thousand addresses
    // can be reached, and the server chooses which one it tries.
    for manner in [Manner::Answers(1000, last), Manner::Answers(1, Ipv4Addr::new(127, 0, 0, 9))] {
        again(manner);
        again(manner);
    }
    names.behave(Manner::Answers(1, last));
    wait_for("the push to arrive again", secs(90), arrives);
    publisher.stop();
    bystander.finish(&mut server);
}
