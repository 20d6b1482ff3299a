//! A cluster with writers and encoders, in which a node or the directory is killed again and again. No acknowledged
//! record is lost, and an id has a single publisher once all nodes and the directory are in contact again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crypto::Seed;
use netsim::MediaSource;

use crate::cluster::Redis;
use crate::support::{Api, Home, RtmpPeer, Server, ms, secs, wait_for};

/// Number of kills in `make test`; `make chaos` kills more often.
const KILLS: usize = 10;
const NODES: [&str; 3] = ["a", "b", "c"];
const BROADCASTS: &str = "/live/rest/v2/broadcasts";

/// Addresses of the nodes: HTTP and RTMP.
type Places = Arc<Mutex<[(SocketAddr, SocketAddr); 3]>>;

struct Cluster {
    redis: Redis,
    folders: [PathBuf; 3],
    nodes: [Option<Server>; 3],
    places: Places,
    _home: Home,
}

impl Cluster {
    fn start() -> Self {
        let (redis, home) = (Redis::start(), Home::new());
        let folders = NODES.map(|name| home.path().join(name));
        let nodes = [0, 1, 2].map(|at| Some(node(&redis, &folders[at], NODES[at])));
        let places = nodes.each_ref().map(|node| place(node.as_ref().unwrap()));
        Self { redis, folders, nodes, places: Arc::new(Mutex::new(places)), _home: home }
    }

    /// Kills a part of the cluster and starts it again: the node with the index `part`, or the directory if `part` is
    /// larger.
    fn kill(&mut self, part: usize) {
        let Some(slot) = self.nodes.get_mut(part) else {
            self.redis.kill();
            return self.redis.begin();
        };
        slot.take().unwrap().kill();
        let server = node(&self.redis, &self.folders[part], NODES[part]);
        self.places.lock().unwrap()[part] = place(&server);
        *slot = Some(server);
    }

    fn has(&self, id: &str) -> bool {
        self.nodes.iter().flatten().all(|node| {
            let reply = node.api().try_call("GET", &format!("{BROADCASTS}/{id}"), None);
            reply.is_some_and(|reply| reply.status == 200)
        })
    }
}

fn node(redis: &Redis, folder: &std::path::Path, name: &str) -> Server {
    let mut settings = redis.settings(name);
    settings.extend(["relay.secret=a secret of all nodes", "server.workers=1"].map(str::to_owned));
    Server::start_in(folder, &settings.iter().map(String::as_str).collect::<Vec<_>>())
}

fn place(server: &Server) -> (SocketAddr, SocketAddr) {
    (server.http, server.rtmp)
}

/// Threads that run until they are dropped.
struct Crew {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    fn go(&mut self, mut work: impl FnMut(&AtomicBool) + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                work(&stop);
            }
        }));
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts a thread that creates records at each node in turn. Returns the list of the acknowledged ones.
fn writer(crew: &mut Crew, places: &Places) -> Arc<Mutex<Vec<String>>> {
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let (places, list, mut count) = (Arc::clone(places), Arc::clone(&acknowledged), 0);
    crew.go(move |_| {
        count += 1;
        let (id, at) = (format!("r{count}"), places.lock().unwrap()[count % 3].0);
        let body = format!(r#"{{"streamId":"{id}"}}"#);
        let reply = Api::new(at).try_call("POST", &format!("{BROADCASTS}/create"), Some(&body));
        if reply.is_some_and(|reply| reply.status == 200) {
            list.lock().unwrap().push(id);
        }
        thread::sleep(ms(10));
    });
    acknowledged
}

/// Starts an encoder that tries to publish the same id at each node in turn. The returned flag is true while a node
/// accepts it.
fn encoder(crew: &mut Crew, places: &Places, mut turn: usize) -> Arc<AtomicBool> {
    let is_live = Arc::new(AtomicBool::new(false));
    let (places, tells) = (Arc::clone(places), Arc::clone(&is_live));
    crew.go(move |stop| {
        turn += 1;
        let at = places.lock().unwrap()[turn % 3].1;
        let Ok(mut peer) = RtmpPeer::publish(at, "live", "contested") else { return thread::sleep(ms(50)) };
        tells.store(true, Ordering::SeqCst);
        let (mut source, began) = (MediaSource::new(&Seed::from_number(5)), Instant::now());
        let mut is_taken = peer.send_configs().is_ok();
        while is_taken && !stop.load(Ordering::SeqCst) {
            let unit = source.next_unit();
            thread::sleep((began + ms(unit.dts_ms)).saturating_duration_since(Instant::now()));
            is_taken = peer.send_unit(&unit).is_ok();
        }
        tells.store(false, Ordering::SeqCst);
    });
    is_live
}

#[test]
fn n_25_parts_of_a_cluster_are_killed_and_no_record_is_lost_and_no_id_held_twice() {
    let kills = std::env::var("SUITE_CHAOS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = std::env::var("SUITE_SEED").map_or(1, |text| text.parse().unwrap());
    println!("seed {seed}, {kills} kills");
    let mut random = Seed::from_number(seed).random();
    let mut cluster = Cluster::start();
    let mut crew = Crew { stop: Arc::default(), threads: Vec::new() };
    let acknowledged = writer(&mut crew, &cluster.places);
    let encoders = [0, 1].map(|turn| encoder(&mut crew, &cluster.places, turn));
    let live = || encoders.iter().filter(|one| one.load(Ordering::SeqCst)).count();
    let mut checked = 0;
    for kill in 0..kills {
        let part = usize::try_from(random.below(4)).unwrap();
        // Waits for a random number of writes, so that the kill may come at any moment of a write.
        let before = acknowledged.lock().unwrap().len();
        let pause = usize::try_from(random.below(20)).unwrap();
        wait_for("writes", secs(30), || acknowledged.lock().unwrap().len() > before + pause);
        cluster.kill(part);
        println!("kill {kill}: {}", NODES.get(part).unwrap_or(&"the directory"));
        // All parts are in contact again when a write succeeds and every node has all acknowledged records.
        let known = acknowledged.lock().unwrap().len();
        wait_for("a write", secs(30), || acknowledged.lock().unwrap().len() > known);
        let news = acknowledged.lock().unwrap()[checked..].to_vec();
        for id in &news {
            wait_for(id, secs(20), || cluster.has(id));
        }
        checked += news.len();
        wait_for("one publisher", secs(30), || live() == 1);
    }
    let all = acknowledged.lock().unwrap().clone();
    let missing: Vec<_> = all.iter().filter(|id| !cluster.has(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    println!("{} records", all.len());
    drop(crew);
}
