//! S-28, S-29: floods of key material and of forged goodbyes, during which other SRT callers must be served.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::publish_play::is_broadcasting;
use crate::support::{
    Bystander, Knock, Program, Server, SrtTool, SrtUrl, goodbye, ms, secs, ts_file, wait_for,
};

/// Number of addresses that flood, each in its own thread.
const LOUD: u8 = 4;
const PASSPHRASE: &str = "correct horse battery";
/// Number of goodbyes for sockets that do not exist, after which goodbyes from the same address are ignored.
const GUESSES: u32 = 16;

/// Publishes with ffmpeg, which knows the passphrase.
fn publish(address: SocketAddr, id: &str) -> Program {
    let url = SrtUrl::caller(address).secret(PASSPHRASE, 16).stream_id(&format!("live/{id}"));
    SrtTool::Ffmpeg.send(&ts_file(true, 12), &url)
}

#[test]
fn s_28_callers_who_know_the_passphrase_get_in_beside_a_flood_of_key_material() {
    let mut server =
        Server::start(&[&format!("srt.passphrase={PASSPHRASE}"), "limits.exempt_loopback=false"]);
    let address = server.srt.unwrap();
    let bystander = Bystander::start(&server);
    let (ended, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Each request has a valid cookie, and contains key material for which the server must derive a key.
    let flood: Vec<_> = (1..=LOUD)
        .map(|n| {
            let (ended, asked) = (Arc::clone(&ended), Arc::clone(&asked));
            std::thread::spawn(move || {
                let knock = Knock::with_wrong_key("live/x").from(format!("127.0.5.{n}").parse().unwrap());
                while !ended.load(Ordering::Relaxed) {
                    asked.fetch_add(knock.conclusions(address, 50), Ordering::Relaxed);
                }
            })
        })
        .collect();
    wait_for("the flood", secs(10), || asked.load(Ordering::Relaxed) > 2000);
    let ids: Vec<String> = (0..4).map(|n| format!("honest{n}")).collect();
    let honest: Vec<Program> = ids.iter().map(|id| publish(address, id)).collect();
    wait_for("the honest callers", secs(30), || ids.iter().all(|id| is_broadcasting(&server, id)));
    ended.store(true, Ordering::Relaxed);
    flood.into_iter().for_each(|thread| thread.join().unwrap());
    println!(
        "{} of {} served, beside {} requests for keys",
        honest.len(),
        ids.len(),
        asked.load(Ordering::Relaxed)
    );
    drop(honest);
    bystander.finish(&mut server);
}

/// Returns the value of a counter once it no longer changes.
fn settled(count: impl Fn() -> f64) -> f64 {
    let mut last = count();
    wait_for("a counter to stand still", secs(20), || {
        std::thread::sleep(ms(50));
        last == std::mem::replace(&mut last, count())
    });
    last
}

#[test]
fn s_29_goodbyes_that_guess_end_nobody_and_others_are_believed() {
    let server = Server::start(&["app.publisherGraceMs=0"]);
    let address = server.srt.unwrap();
    let is_live = |id: &str| is_broadcasting(&server, id);
    let [honest, guessing] = ["honest", "guessing"].map(|id| {
        let name = format!("live/{id}");
        let peer = Knock::new(&name).open(address);
        wait_for("the stream", secs(5), || is_live(id));
        peer
    });
    // Sends thousands of goodbyes with the right socket id from another address.
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5000 {
        elsewhere.send_to(&goodbye(honest.1), address).unwrap();
    }
    // Sends goodbyes with guessed ids from the address of a connection, and then one with the right id, which is too
    // late. Waits before and after the guesses, because the server does not count guesses that its full socket drops.
    let dropped = || server.api().metric("millstream_dropped_datagrams_total", "nobody");
    let before = settled(dropped);
    let (socket, id) = &guessing;
    for guess in 0..=GUESSES {
        socket.send(&goodbye(id.wrapping_add(1 + guess) & 0x3fff_ffff)).unwrap();
    }
    wait_for("the guesses to be looked at", secs(10), || dropped() > before + f64::from(GUESSES));
    socket.send(&goodbye(*id)).unwrap();
    std::thread::sleep(ms(300));
    let live = ["honest", "guessing"].map(is_live);
    assert_eq!(live, [true; 2], "{} of {before}: {}", dropped(), server.log());
    // A goodbye from a session that has not guessed takes effect immediately.
    honest.0.send(&goodbye(honest.1)).unwrap();
    wait_for("the end of the honest one", secs(4), || !is_live("honest"));
    server.wait_for_line("the peer said goodbye");
}
