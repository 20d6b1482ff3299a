//! Small WebRTC relay: a single publisher over WHIP, any number of viewers over WHEP, a single UDP port.
//!
//! ```text
//! whip [ADDRESS:PORT] [--profile gcm128|gcm256|sha1-80] [--dtls-client] [--loss PERCENT]
//! ```
//!
//! The program listens for HTTP and UDP at the address (default 127.0.0.1, any ports), prints `ready
//! http://ADDRESS:PORT`, and then a line for each event. `POST /whip` publishes, `POST /whep` plays. Without
//! `--profile`, all profiles are offered. With `--dtls-client`, the relay starts the DTLS handshakes. With
//! `--loss`, this percentage of datagrams is dropped in each direction.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example is the shell around the machine: it has the sockets, the clock and the threads"
)]

mod http;
mod relay;

use std::error::Error;
use std::sync::atomic::AtomicBool;

use dtls::SrtpProfile;
use relay::{Options, Relay};

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--loss" => options.loss = args.next().unwrap_or_default().parse::<f64>()? / 100.0,
            "--dtls-client" => options.dtls_client = true,
            "--profile" => {
                options.profile = Some(match args.next().as_deref() {
                    Some("gcm128") => SrtpProfile::AeadAes128Gcm,
                    Some("gcm256") => SrtpProfile::AeadAes256Gcm,
                    Some("sha1-80") => SrtpProfile::Aes128CmSha1_80,
                    _ => return Err("gcm128, gcm256 or sha1-80?".into()),
                });
            }
            address => options.address = address.parse()?,
        }
    }
    let (http_at, requests) = http::listen(options.address)?;
    let relay = Relay::new(&options, |line| println!("{line}"))?;
    println!("ready http://{http_at} udp {}", relay.local());
    relay.run(&requests, &AtomicBool::new(false))?;
    Ok(())
}
