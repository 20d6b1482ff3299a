//! A publisher and a server of RTMP, in one process: what stands in the crate's README, as a program that has no other
//! dependency.

use rtmp::{Client, ClientConfig, ClientEvent, Config, Event, Seed, SendQueue, Server};
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (now, seed) = (Instant::now(), Seed::from_os()?);
    let config = ClientConfig {
        app: "live".to_owned(),
        tc_url: "rtmp://example.org/live".to_owned(),
        stream: "first".to_owned(),
        ..ClientConfig::default()
    };
    let mut client = Client::publish(now, Arc::new(config), seed.derive("client", 1));
    let mut server = Server::new(now, Arc::new(Config::default()), seed.derive("server", 1));
    let mut is_ready = false;
    while !is_ready {
        // The transport: a socket in a real program. `Err` is fatal, and says what the peer did.
        let mut out = SendQueue::new();
        client.poll_transmit(&mut out);
        server.handle_bytes(now, &out.take_all())?;
        while let Some(event) = server.poll_event() {
            match event {
                Event::Connect(request) => assert_eq!(request.app(), Ok("live")),
                Event::Publish(request) => {
                    assert_eq!(request.target()?.stream, "first");
                    server.accept_publish(now, request.message_stream);
                    continue;
                }
                other => panic!("{other:?}"),
            }
            server.accept_connect(now);
        }
        server.poll_transmit(&mut out);
        client.handle_bytes(now, &out.take_all())?;
        is_ready = std::iter::from_fn(|| client.poll_event())
            .any(|event| matches!(event, ClientEvent::Ready { .. }));
    }
    Ok(())
}
