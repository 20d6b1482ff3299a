//! Viewers without a connection, across many workers: each is counted by one worker, and the worker reports
//! to control once that the viewer came and once that it left.

use std::collections::BTreeSet;

use super::*;
use crate::mail::{LeaseNews, StreamDetails, StreamEnd};
use crate::types::Ingest;

const STREAM: StreamId = StreamId(7);

/// Workers that share the counting of a stream's viewers, and pass requests on to the worker that counts the viewer.
struct Many(Now, Vec<Worker>, Vec<LeaseNews>);

impl Many {
    fn new(count: u16) -> Self {
        Self::telling(count, false)
    }

    /// Makes `count` workers; `tell_viewers` is true if control wants reports of viewers.
    fn telling(count: u16, tell_viewers: bool) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let workers = (0..count).map(|index| {
            let worker = Worker::new(WorkerId(index), now, Seed::from_number(1), &Seed::from_number(9));
            let mut worker = worker.of_workers(count);
            worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
            let mail = ToWorker::StreamUp {
                stream: STREAM,
                key: StreamKey::new("live", "cam"),
                source: WorkerId(0),
                ingest: Ingest::PULL,
                details: StreamDetails { tell_viewers, ..StreamDetails::default() },
                settings: Arc::clone(&settings),
            };
            worker.handle_mail(now, mail);
            worker
        });
        Self(now, workers.collect(), Vec::new())
    }

    fn ask(&mut self, worker: usize, viewer: &str, former: Option<&str>) {
        let asked = &mut self.1[worker];
        let id = asked.accept(self.0, Listener::named("http").unwrap(), ([192, 0, 2, 1], 4000).into());
        let (viewer_of, viewer) = (viewer, viewer.to_owned());
        let former = former.map(str::to_owned);
        asked.polled.renew_lease(
            &mut asked.turn,
            &asked.conns,
            &asked.live,
            id.unwrap(),
            crate::protocol::Watched {
                stream: STREAM,
                protocol: "hls",
                viewer,
                former,
                params: vec![("x".into(), viewer_of.into())],
            },
        );
        self.deliver();
    }

    /// Delivers mail between workers until none is left.
    fn deliver(&mut self) {
        let mut mails = Vec::new();
        loop {
            for worker in &mut self.1 {
                while let Some(output) = worker.poll_output() {
                    match output {
                        Output::Worker(to, mail) => mails.push((to, mail)),
                        Output::Control(ToControl::Leased(news)) => self.2.push(*news),
                        _ => {}
                    }
                }
            }
            if mails.is_empty() {
                return;
            }
            for (to, mail) in mails.drain(..) {
                self.1[usize::from(to.0)].handle_mail(self.0, mail);
            }
        }
    }

    /// Returns the news that control got since the last call: for each viewer, `+` (came) or `-` (left) and the value
    /// of the parameter `x` of its request.
    fn told(&mut self) -> String {
        let word = |news: LeaseNews| {
            let sign = if news.came { "+" } else { "-" };
            assert_eq!(news.key, StreamKey::new("live", "cam"));
            format!("{sign}{}", news.params[0].1)
        };
        self.2.drain(..).map(word).collect::<Vec<_>>().join(" ")
    }

    fn wait(&mut self, seconds: u64) {
        self.0.mono += Duration::from_secs(seconds);
        self.1.iter_mut().for_each(|worker| worker.handle_timeout(self.0));
        self.deliver();
    }

    fn count(&self) -> u32 {
        self.1.iter().flat_map(|worker| worker.polled.leases.counts()).map(|(_, _, count)| count).sum()
    }
}

#[test]
fn a_viewer_is_counted_once_whichever_workers_it_asks() {
    for seed in 0..20 {
        let mut random = Seed::from_number(seed).random();
        let mut below = move |limit: u64| random.u64() % limit;
        let mut many = Many::new(u16::try_from(1 + below(8)).unwrap());
        let workers = u64::try_from(many.1.len()).unwrap();
        let mut known = BTreeSet::new();
        for _ in 0..300 {
            let (worker, viewer) = (usize::try_from(below(workers)).unwrap(), below(40));
            many.ask(worker, &format!("a:{viewer}"), None);
            known.insert(format!("a:{viewer}"));
            assert_eq!(usize::try_from(many.count()).unwrap(), known.len(), "seed {seed}");
        }
        // The same viewers, now with cookies.
        for viewer in 0..40 {
            let (name, former) = (format!("c:{viewer}"), format!("a:{viewer}"));
            many.ask(usize::try_from(below(workers)).unwrap(), &name, Some(&former));
            known.remove(&former);
            known.insert(name);
            assert_eq!(usize::try_from(many.count()).unwrap(), known.len(), "seed {seed}");
        }
        // No single worker holds all leases.
        let most = many.1.iter().map(|worker| worker.polled.leases.len()).max().unwrap();
        assert!(workers < 3 || most < known.len(), "seed {seed}");
        many.0.mono += Duration::from_secs(11);
        many.1.iter_mut().for_each(|worker| worker.handle_timeout(many.0));
        assert_eq!(many.count(), 0, "seed {seed}");
    }
}

#[test]
fn a_viewer_s_coming_and_going_are_told_once_whichever_workers_it_asks() {
    for workers in [1, 2, 5] {
        let mut many = Many::telling(workers, true);
        let last = usize::from(workers) - 1;
        for worker in [0, last, 0] {
            many.ask(worker, "a", None);
        }
        assert_eq!(many.told(), "+a", "{workers}");
        // The viewer now has a cookie, but still counts as the same viewer.
        for worker in [last, 0] {
            many.ask(worker, "c", Some("a"));
        }
        assert_eq!(many.told(), "", "{workers}");
        many.wait(11);
        assert_eq!(many.told(), "-c", "{workers}");
        // The viewer has kept its cookie and returns.
        many.ask(last, "c", Some("a"));
        many.ask(0, "d", None);
        assert_eq!(many.told(), "+c +d", "{workers}");
        let down = |worker: &mut Worker| {
            worker.handle_mail(many.0, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
        };
        many.1.iter_mut().for_each(down);
        many.deliver();
        let mut gone: Vec<String> = many.told().split(' ').map(str::to_owned).collect();
        gone.sort();
        assert_eq!(gone, ["-c", "-d"], "{workers}");
        many.wait(11);
        assert_eq!(many.told(), "", "{workers}");
    }
    let mut untold = Many::new(2);
    untold.ask(0, "a", None);
    untold.wait(11);
    assert_eq!(untold.told(), "", "nobody wants to know");
}

#[test]
fn an_ended_viewer_counts_no_more_and_its_requests_are_refused_on_every_worker() {
    for workers in [1, 2, 5] {
        let mut many = Many::telling(workers, true);
        let last = usize::from(workers) - 1;
        many.ask(0, "a", None);
        many.ask(last, "b", None);
        assert_eq!((many.told().as_str(), many.count()), ("+a +b", 2), "{workers}");
        let ends =
            ToWorker::EndPolled { stream: STREAM, protocol: "hls", viewer: "a".into(), reason: "test" };
        many.1.iter_mut().for_each(|worker| worker.handle_mail(many.0, ends.clone()));
        many.deliver();
        assert_eq!((many.told().as_str(), many.count()), ("-a", 1), "{workers}");
        let cam = StreamKey::new("live", "cam");
        let refused = |many: &mut Many, viewer| {
            let now = many.0.mono;
            let workers = many.1.iter_mut();
            workers.map(|worker| worker.polled.barred.has(now, &cam, "hls", viewer)).collect::<BTreeSet<_>>()
        };
        assert_eq!(refused(&mut many, "a"), BTreeSet::from([true]), "{workers}");
        assert_eq!(refused(&mut many, "b"), BTreeSet::from([false]), "{workers}");
        many.wait(60);
        assert_eq!(refused(&mut many, "a"), BTreeSet::from([false]), "{workers}");
    }
}
