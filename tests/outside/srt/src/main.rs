//! A caller and a listener of SRT, in one process: what stands in the crate's README, as a program that has no other
//! dependency.

use srt::{Config, Connection, Datagrams, Endpoint, Event, Route, Seed, SocketId};
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (now, seed, config) = (Instant::now(), Seed::from_os()?, Arc::new(Config::default()));
    let from = "192.0.2.1:5000".parse()?;
    let mut port = Endpoint::new(now, &seed);
    let call = seed.derive("call", 1);
    let mut caller =
        Connection::caller(now, Arc::clone(&config), SocketId::random(&call), "live/stream", &call);
    let mut listener = None;
    while !caller.is_connected() {
        // The caller's datagrams arrive at the port; those of the port and the listener go back.
        let (mut out, mut reply) = (Datagrams::new(), Vec::new());
        caller.poll_transmit(now, &mut out);
        match port.route(now, from, out.get(0), &mut reply) {
            Route::New(incoming) if incoming.stream_id() == Some("live/stream") => {
                let mut connection = port.accept(now, *incoming, Arc::clone(&config), "a viewer", &seed);
                let mut answer = Datagrams::new();
                connection.poll_transmit(now, &mut answer);
                answer.iter().for_each(|datagram| caller.handle_datagram(now, datagram));
                listener = Some(connection);
            }
            _ => caller.handle_datagram(now, &reply),
        }
    }
    let mut listener = listener.expect("the port has accepted");
    assert!(matches!(listener.poll_event(), Some(Event::Connected(_))));

    caller.send(now, "a message".into())?;
    let mut out = Datagrams::new();
    caller.poll_transmit(now, &mut out);
    assert!(matches!(port.route(now, from, out.get(0), &mut Vec::new()), Route::Session("a viewer")));
    listener.handle_datagram(now, out.get(0));
    // Its time to be played is a latency from now.
    assert!(listener.poll_timeout() > Some(now));
    Ok(())
}
