//! The API as a script sees it, over one connection per request.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A status and a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Api(SocketAddr);

impl Api {
    pub fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.call("POST", path, Some(body))
    }

    pub fn put(&self, path: &str, body: &str) -> Reply {
        self.call("PUT", path, Some(body))
    }

    pub fn delete(&self, path: &str) -> Reply {
        self.call("DELETE", path, None)
    }

    /// Returns the broadcast; `None` if it does not exist.
    pub fn broadcast(&self, app: &str, id: &str) -> Option<Value> {
        let reply = self.get(&format!("/{app}/rest/v2/broadcasts/{id}"));
        (reply.status == 200).then(|| reply.json())
    }

    /// Returns the sum of all metrics whose lines begin with `name` and contain `label`; an empty label matches
    /// every line.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let page = self.get("/metrics").body;
        let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Makes a call; `None` if the server does not answer.
    pub fn try_call(&self, method: &str, path: &str, body: Option<&str>) -> Option<Reply> {
        self.try_call_with(method, path, &[], body)
    }

    /// Makes a call with header fields.
    pub fn call_with(&self, method: &str, path: &str, fields: &[(&str, &str)], body: Option<&str>) -> Reply {
        let reply = self.try_call_with(method, path, fields, body);
        reply.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    fn try_call_with(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: Option<&str>,
    ) -> Option<Reply> {
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let typed = fields.to_ascii_lowercase().contains("content-type:");
        let body_type = if typed { "" } else { "Content-Type: application/json\r\n" };
        let body_head =
            body.map_or_else(String::new, |body| format!("{body_type}Content-Length: {}\r\n", body.len()));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\nConnection: close\r\n{fields}{body_head}\r\n{}",
            self.0,
            body.unwrap_or_default()
        );
        let mut stream = TcpStream::connect_timeout(&self.0, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        parse(&answer)
    }

    pub fn call(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        self.try_call(method, path, body).unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }
}

fn parse(answer: &[u8]) -> Option<Reply> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Reply { status, head: head.to_owned(), body: body.to_owned() })
}

/// Sends bytes as they are, closes the sending side, and reads until the peer closes.
pub fn raw_exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The peer may answer and close before everything is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}
