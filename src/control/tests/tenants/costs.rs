//! Instructions of the steps of control, for the table of [`super::COSTS`].

use std::cell::Cell;

use super::super::*;
use super::COSTS;

thread_local! {
    /// Number of calls of [`counted`].
    static COUNTED: Cell<usize> = const { Cell::new(0) };
}

/// Runs the part of a step whose instructions count.
#[inline(never)]
fn counted(step: impl FnOnce()) {
    step();
    COUNTED.set(std::hint::black_box(COUNTED.get() + 1));
}

/// Checks that each step of the table can be counted. Under callgrind, counts one step. `MILLSTREAM_STEP` names the
/// step and how often it is repeated:
/// `MILLSTREAM_STEP="Get 100" valgrind --tool=callgrind --callgrind-out-file=/dev/null
/// --toggle-collect='*costs*counted*' TEST_BINARY --exact
/// control::tests::tenants::costs::each_step_of_the_table_can_be_counted`.
#[test]
fn each_step_of_the_table_can_be_counted() {
    if let Ok(asked) = std::env::var("MILLSTREAM_STEP") {
        let (step, count) = asked.split_once(' ').unwrap();
        return count_step(step, count.parse().unwrap());
    }
    for (nth, (step, _)) in COSTS.iter().enumerate() {
        count_step(&format!("{step:?}"), 2);
        assert_eq!(COUNTED.get(), nth + 1, "{step:?}");
    }
}

fn count_step(step: &str, count: usize) {
    let mut rig = Rig::with(
        &[("limits.publishers_per_address", "100000")],
        &[("listenerHookURL", "http://hook.example/in"), ("remoteAllowedCIDR", "127.0.0.0/8")],
    );
    let path = "/live/rest/v2/broadcasts";
    let create = |rig: &mut Rig, nth: usize| {
        rig.send(Method::Post, &format!("{path}/create"), &format!(r#"{{"streamId":"{nth}"}}"#));
    };
    let feed = |rig: &mut Rig| {
        let (session, peer) = (rig.session(0), "127.0.0.1:9".parse().unwrap());
        let request = Box::new(request(Method::Get, &format!("{path}/list/0/50"), ""));
        rig.mail(ToControl::Feed { session, peer, secure: false, request });
    };
    let source = |nth: usize| {
        format!(r#"{{"streamId":"c{nth}","type":"streamSource","streamUrl":"udp://:{}"}}"#, 5000 + nth)
    };
    (0..if matches!(step, "Search" | "Slice" | "Feed" | "FeedSlice") { 3000 } else { 100 })
        .for_each(|nth| create(&mut rig, 10_000 + nth));
    rig.run_for(secs(1));
    let search = format!("{path}/list/0/50?search=nothing&sort_by=date&order_by=desc");
    let mut streams = Vec::new();
    if matches!(step, "Gone" | "Job") {
        for nth in 0..count {
            let (session, stream) = rig.publish(&format!("p{nth}"), 0);
            rig.mail(ToControl::SourceStarted(stream));
            streams.push((session, stream));
        }
    }
    match step {
        "Get" => counted(|| {
            (0..count).for_each(|_| {
                rig.send(Method::Get, &format!("{path}/10001"), "");
            })
        }),
        "Create" => counted(|| (0..count).for_each(|nth| create(&mut rig, nth))),
        "Written" => {
            (0..count).for_each(|nth| create(&mut rig, nth));
            counted(|| rig.run_for(ms(5)));
        }
        "Delete" => counted(|| {
            (0..count).for_each(|nth| {
                rig.send(Method::Delete, &format!("{path}/{}", 10_000 + nth), "");
            });
            rig.run_for(ms(5));
        }),
        "Source" => counted(|| {
            (0..count).for_each(|nth| {
                rig.send(Method::Post, &format!("{path}/create?autoStart=true"), &source(nth));
            });
            rig.run_for(ms(5));
        }),
        "Endpoint" => counted(|| {
            (0..count).for_each(|nth| {
                let body = format!(r#"{{"rtmpUrl":"rtmp://198.51.100.9/live/{nth}"}}"#);
                rig.send(Method::Post, &format!("{path}/{}/rtmp-endpoint", 10_000 + nth), &body);
            });
            rig.run_for(ms(5));
        }),
        "Upload" => counted(|| {
            (0..count).for_each(|nth| {
                let mut request = request(Method::Post, "/live/rest/v2/vods/create?name=a.mp4", "");
                request.headers.push("Content-Type", "multipart/form-data; boundary=b");
                rig.send_request(&format!("127.0.0.{nth}:9"), request);
            });
            rig.run_for(ms(5));
        }),
        "Search" => counted(|| {
            (0..count).for_each(|_| {
                rig.send(Method::Get, &search, "");
            })
        }),
        "Slice" => {
            rig.send(Method::Get, &search, "");
            // The scan takes three slices: two that examine records, and one that writes the answer.
            counted(|| rig.run_for(ms(5)));
            println!("{} answers", rig.take().len());
        }
        "Feed" => counted(|| (0..count).for_each(|_| feed(&mut rig))),
        "FeedSlice" => {
            (0..count).for_each(|_| feed(&mut rig));
            rig.take();
            counted(|| {
                rig.set(rig.now.mono + ms(1));
                rig.control.handle_timeout(rig.now);
            });
            println!("{} answers", rig.take().len());
        }
        "Publish" => counted(|| {
            (0..count).for_each(|nth| {
                let (_, stream) = rig.publish(&format!("p{nth}"), 0);
                rig.mail(ToControl::SourceStarted(stream));
            });
        }),
        "Gone" => counted(|| {
            for (session, stream) in streams {
                rig.gone(session, stream, Departure::Clean, 0);
            }
        }),
        "Job" => counted(|| {
            for _ in 0..count {
                let Some(hook) = rig.hooks.pop() else { break };
                rig.done(hook.id, Outcome::Posted(Ok(200)));
            }
        }),
        "Tick" => counted(|| (0..count).for_each(|_| rig.control.handle_timeout(rig.now))),
        other => panic!("no step is called {other}"),
    }
}
