//! An application's own files as sources: the paths and URLs that name them.

use super::*;

fn list(urls: &[&str]) -> String {
    let items: Vec<String> = urls.iter().map(|url| format!(r#"{{"streamUrl":"{url}"}}"#)).collect();
    let items = items.join(",");
    format!(
        r#"{{"streamId":"p","type":"playlist","playListItemList":[{items}],"playlistLoopEnabled":false}}"#
    )
}

impl Rig {
    /// Returns the order of the file to be played next.
    fn file(&mut self) -> (WorkerId, PullOrder, String) {
        let (worker, order) = self.pull();
        assert!(order.target.is_file() && order.address.ip().is_unspecified());
        let asked = request_text(&order.target);
        (worker, order, asked)
    }
}

#[test]
fn a_path_or_a_url_of_our_own_is_played_from_the_file() {
    let mut rig = Rig::with(&[("server.name", "media.example"), ("outbound.deny", "127.0.0.0/8")], &[]);
    for (number, url) in [
        "streams/sub/a.mp4",
        "webapps/live/streams/sub/a.mp4",
        "/usr/local/antmedia/webapps/live/streams/sub/a.mp4",
        "http://192.0.2.1:5080/live/streams/sub/a.mp4",
        "http://127.0.0.1:5080/live/streams/sub/a.mp4?token=x",
        "http://[::1]:5080/live/streams/s%75b/a.mp4",
        "https://localhost:5443/live/streams/sub/a.mp4",
        "https://Media.Example:5443/live//streams/sub/a.mp4#t=1",
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s{number}");
        rig.source(&id, url);
        let (_, _, asked) = rig.file();
        assert_eq!(asked, r#"OwnFile(["live", "streams", "sub", "a.mp4"])"#, "{url}");
        assert_eq!((rig.record(&id)["streamUrl"].as_str(), &*rig.state(&id)), (Some(url), "preparing"));
    }
    assert_eq!(rig.record("s0")["type"], "VoD");
    assert!(rig.resolves.is_empty(), "nobody is asked for an address");
}

#[test]
fn u_30_what_is_not_a_file_of_the_application_is_not_played() {
    let mut rig = Rig::new();
    for url in [
        "webapps/LiveApp/streams/a.mp4",
        "/x/webapps/LiveApp/streams/a.mp4",
        "http://127.0.0.1:5080/LiveApp/streams/a.mp4",
        "streams/../WEB-INF/a.mp4",
        "streams/.a.mp4",
        "streams/a.properties",
        "http://127.0.0.1:5080/live/streams/../a.mp4",
        "http://127.0.0.1:5080/live/streams/%2e%2e/a.mp4",
        "http://127.0.0.1:5080/live/streams/a%2fb.mp4",
        "http://127.0.0.1:5080/live/WEB-INF/a.mp4",
        "http://127.0.0.1:5080/live/streams/a.m3u8",
        "http://127.0.0.1:5080/live/a.flv",
    ] {
        let (status, answer) = rig.post(&format!("{BROADCASTS}/create?autoStart=true"), &body("s", url));
        assert!(status == 200 && answer.contains(r#""success":false"#), "{url}: {answer}");
        let stored = format!(r#"{{"streamId":"v","type":"VoD","streamUrl":"{url}"}}"#);
        rig.post(&format!("{BROADCASTS}/create"), &stored);
        let (_, answer) = rig.op("v", "start");
        assert!(answer.contains(r#""success":false"#), "{url}: {answer}");
        rig.call(Method::Delete, &format!("{BROADCASTS}/v"), "");
        assert!(rig.pulls().is_empty(), "{url}");
    }
    for url in ["streams/\\u0000.mp4", "/etc/passwd", "file:///etc/a.mp4", "a.mp4"] {
        let refused = rig.post(&format!("{BROADCASTS}/create"), &body("s", url));
        assert_eq!(refused, (400, failure("Stream url is not valid. ")), "{url}");
    }
    // Files of other servers are fetched over the network.
    rig.source("s", "http://198.51.100.1:5080/live/streams/a.mp4");
    assert!(!rig.pull().1.target.is_file());
}

#[test]
fn a_file_that_is_missing_is_a_failed_attempt_and_one_that_is_over_begins_anew() {
    let mut rig = Rig::new();
    rig.source("v", "streams/a.mp4");
    let (_, order, _) = rig.file();
    rig.pull_news(order.pull, order.attempt, PullState::Failed("there is no such file".into()));
    assert_eq!(rig.state("v"), "finished");
    rig.run_for(secs(1));
    let (worker, order, _) = rig.file();
    assert_eq!(order.attempt, 2);
    let (session, grant) = rig.delivers(worker, &order).unwrap();
    assert_eq!(rig.state("v"), "broadcasting");
    rig.loses(session, &order, grant.stream, 3000);
    assert_eq!(rig.state("v"), "finished");
    rig.take();
    rig.run_for(secs(1));
    assert_eq!(rig.file().1.attempt, 3);
    assert_eq!(
        rig.put("v", r#"{"streamUrl":"streams/../a.mp4"}"#),
        (200, failure("Stream URL is not valid"))
    );
    rig.put("v", r#"{"streamUrl":"streams/b.mp4"}"#);
    assert!(rig.file().2.contains("b.mp4"));
    rig.op("v", "stop");
    assert_eq!(rig.state("v"), "finished");
}

#[test]
fn items_of_a_playlist_are_files_and_those_of_others_are_passed_over() {
    let mut rig = Rig::new();
    let items =
        ["streams/a.mp4", "webapps/LiveApp/streams/x.mp4", "http://localhost:5080/live/streams/b.mp4"];
    rig.post(&format!("{BROADCASTS}/create"), &list(&items));
    assert_eq!(rig.op("p", "start"), ok("p"));
    for wanted in ["a.mp4", "b.mp4"] {
        let (worker, order, asked) = rig.file();
        assert!(asked.contains(wanted), "{asked}");
        let (session, grant) = rig.delivers(worker, &order).unwrap();
        rig.take();
        rig.gone(session, grant.stream, Departure::Lost, 5000);
        let over = PullState::Lost { reason: "the file is over".to_owned(), ahead: secs(5) };
        rig.pull_news(order.pull, order.attempt, over);
    }
    assert!(rig.pulls().is_empty());
    assert_eq!(
        (rig.state("p").as_str(), rig.record("p")["playListStatus"].as_str()),
        ("finished", Some("finished"))
    );
}
