//! A receiver of hooks: notes the hooks sent to it, and answers as configured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{secs, wait_for};

/// The way in which a receiver answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Answers with a status and nothing else.
    Status(u16),
    /// Does not answer, for as long as the peer waits.
    Silent,
    /// Answers with 200 and an endless body.
    Huge,
    /// Answers with a redirect to the receiver itself.
    Redirect,
}

#[derive(Debug)]
struct State {
    manner: Manner,
    told: Vec<(String, Value)>,
    connections: usize,
}

/// A running receiver; its threads end with the test's process.
#[derive(Debug, Clone)]
pub struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(Mutex::new(State { manner, told: Vec::new(), connections: 0 }));
        let receiver = Self { address: listener.local_addr().unwrap(), state };
        let serving = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        receiver
    }

    /// Returns the URL of a path of the receiver.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub fn behave(&self, manner: Manner) {
        self.state.lock().unwrap().manner = manner;
    }

    /// Returns the bodies sent to a path, in the order of their arrival.
    pub fn told(&self, path: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let of_path = state.told.iter().filter(|(to, _)| to == &format!("/{path}"));
        of_path.map(|(_, body)| body.clone()).collect()
    }

    /// Returns action and id of each hook sent to a path.
    pub fn actions(&self, path: &str) -> Vec<String> {
        let name = |hook: Value| {
            format!("{} {}", hook["action"].as_str().unwrap_or("-"), hook["id"].as_str().unwrap_or("-"))
        };
        self.told(path).into_iter().map(name).collect()
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    /// Waits until a path has received an action about a stream.
    pub fn wait_for(&self, path: &str, action: &str) {
        wait_for(action, secs(30), || self.actions(path).iter().any(|told| told == action));
    }

    fn serve(&self, mut stream: TcpStream) {
        self.state.lock().unwrap().connections += 1;
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let length = lines.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = lines[0].split_whitespace().nth(1).unwrap_or("").to_owned();
        let manner = {
            let mut state = self.state.lock().unwrap();
            // A body that is not JSON is a form, and is kept as text.
            let text = || String::from_utf8_lossy(&body).into_owned().into();
            let told = serde_json::from_slice(&body).unwrap_or_else(|_| text());
            state.told.push((path, told));
            state.manner
        };
        let _ = match manner {
            Manner::Status(status) => {
                stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes())
            }
            Manner::Silent => reader.read_to_end(&mut body).map(drop),
            Manner::Huge => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b'x'; 65_536]).is_ok() {}
                Ok(())
            }
            Manner::Redirect => {
                let answer = format!(
                    "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
                    self.url("elsewhere")
                );
                stream.write_all(answer.as_bytes())
            }
        };
    }
}
