//! B-01, B-11: kill -9 at any moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crypto::Seed;
use netsim::MediaSource;

use super::super::support::{Home, RtmpPeer, Server, secs, wait_for};
use super::{CREATE, name_of, try_create, try_update};

/// Number of kills, unless the environment sets another number.
const KILLS: usize = 50;
const WRITERS: usize = 64;

/// State of a broadcast as its writer knows it.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Last acknowledged value: 0 after the create, then the number of the update.
    acknowledged: Option<u64>,
    /// Last value sent.
    sent: u64,
}

/// Creates broadcasts, and updates each twice, until the server is gone.
fn write_until_killed(api: super::Api, prefix: &str, stop: &AtomicBool) -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    for n in 0.. {
        let id = format!("{prefix}-{n}");
        let entry: &mut Known = known.entry(id.clone()).or_default();
        if try_create(&api, &id, "v0") != Some(200) {
            break;
        }
        entry.acknowledged = Some(0);
        for value in 1..=2 {
            entry.sent = value;
            if try_update(&api, &id, &format!("v{value}")) != Some(true) {
                return known;
            }
            entry.acknowledged = Some(value);
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    known
}

fn check(server: &Server, known: &BTreeMap<String, Known>, seed: u64) {
    for (id, known) in known {
        let value = name_of(server, id).map(|name| name[1..].parse::<u64>().unwrap());
        match (known.acknowledged, value) {
            (Some(acknowledged), Some(value)) => assert!(
                (acknowledged..=known.sent).contains(&value),
                "seed {seed}: {id} is at {value}, acknowledged {acknowledged}, sent {}",
                known.sent
            ),
            (Some(_), None) => panic!("seed {seed}: {id} was acknowledged and is lost"),
            (None, None) => {}
            (None, Some(value)) => assert_eq!(value, 0, "seed {seed}: {id}"),
        }
    }
}

#[test]
fn b_01_no_acknowledged_write_is_lost_by_kill_9() {
    let kills = std::env::var("SUITE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = std::env::var("SUITE_SEED").map_or_else(
        |_| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(),
        |text| text.parse().unwrap(),
    );
    println!("seed {seed}, {kills} kills");
    let mut random = Seed::from_number(seed).random();
    let home = Home::new();
    let folder = home.path().join("home");
    let mut all = BTreeMap::new();
    let mut longest = Duration::ZERO;
    let mut server = Server::start_in(&folder, &[]);
    for round in 0..kills {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (api, stop) = (server.api(), Arc::clone(&stop));
                let prefix = format!("k{round}-{writer}");
                std::thread::spawn(move || write_until_killed(api, &prefix, &stop))
            })
            .collect();
        std::thread::sleep(Duration::from_micros(random.below(80_000)));
        server.kill();
        stop.store(true, Ordering::SeqCst);
        let mut known = BTreeMap::new();
        writers.into_iter().for_each(|writer| known.extend(writer.join().unwrap()));
        let began = Instant::now();
        server = Server::start_in(&folder, &[]);
        longest = longest.max(began.elapsed());
        check(&server, &known, seed);
        all.extend(known);
    }
    // Records of earlier rounds have survived the later kills, and there are no records that nobody wrote.
    check(&server, &all, seed);
    let count = server.api().get("/live/rest/v2/broadcasts/count").json()["number"].as_u64().unwrap();
    let acknowledged = all.values().filter(|known| known.acknowledged.is_some()).count() as u64;
    assert!((acknowledged..=all.len() as u64).contains(&count), "seed {seed}: {count} of {acknowledged}");
    assert!(acknowledged > kills as u64, "seed {seed}: only {acknowledged} writes in {kills} rounds");
    println!("{acknowledged} broadcasts acknowledged, none lost; the longest start took {longest:?}");
}

#[test]
fn b_11_what_was_live_at_a_kill_is_finished_and_a_zombi_gone() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    let api = server.api();
    for id in ["stored", "idle"] {
        assert_eq!(try_create(&api, id, "n"), Some(200));
    }
    let peers: Vec<_> = ["stored", "zombi"]
        .into_iter()
        .map(|id| {
            let mut peer = RtmpPeer::publish(server.rtmp, "live", id).unwrap();
            peer.send_configs().unwrap();
            let mut source = MediaSource::new(&Seed::from_number(6));
            (0..90).for_each(|_| peer.send_unit(&source.next_unit()).unwrap());
            peer
        })
        .collect();
    let status = |id| api.broadcast("live", id).map(|record| record["status"].clone());
    wait_for("both to be live", secs(10), || {
        ["stored", "zombi"].iter().all(|id| status(id).is_some_and(|status| status == "broadcasting"))
    });
    let endpoint = r#"{"endpointUrl":"rtmp://127.0.0.1:1/live/x"}"#;
    let added = api.post("/live/rest/v2/broadcasts/stored/endpoint", endpoint);
    assert_eq!(added.json()["success"], true, "{added:?}");
    // Each acknowledged change also writes the current live state of the record to the disk.
    assert_eq!(try_update(&api, "stored", "m"), Some(true));
    assert_eq!(try_update(&api, "zombi", "m"), Some(true));
    server.kill();
    drop(peers);

    let mut again = Server::start_in(&folder, &[]);
    let api = again.api();
    let stored = api.broadcast("live", "stored").unwrap();
    assert_eq!((&stored["status"], &stored["name"]), (&"finished".into(), &"m".into()));
    assert_eq!((&stored["rtmpViewerCount"], &stored["zombi"]), (&0.into(), &false.into()));
    let endpoint = &stored["endPointList"][0]["status"];
    assert!(endpoint == "finished" || endpoint == "created", "{endpoint}");
    assert_eq!(api.broadcast("live", "idle").unwrap()["status"], "created");
    assert!(api.broadcast("live", "zombi").is_none(), "a record that only publishing made");
    assert_eq!(api.get("/live/rest/v2/broadcasts/count").json()["number"], 2);
    assert_eq!(api.get("/live/rest/v2/broadcasts/active-live-stream-count").json()["number"], 0);
    // The ids of streams that were live before the kill can be used again.
    assert_eq!(api.post(CREATE, r#"{"streamId":"zombi"}"#).status, 200);
    let peer = RtmpPeer::publish(again.rtmp, "live", "stored").unwrap();
    drop(peer);
    assert!(again.terminate().success());
}
