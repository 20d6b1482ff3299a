//! Fair shares: feeds, places of uploads, and the size of lists.

use super::*;
use crate::control::records::auxiliary::Auxiliary;
use crate::store::{Key, Kind};

const LIST_BYTES_MAX: usize = 2 * 1024 * 1024;

impl Rig {
    /// Sends a client's feed request that names `ids` broadcasts of an application.
    fn feed(&mut self, client: &Client, ids: usize) -> SessionRef {
        let session = self.session(0);
        self.feed_again(client, session, ids);
        session
    }

    fn feed_again(&mut self, client: &Client, session: SessionRef, ids: usize) {
        let ids: Vec<String> = (0..ids).map(|n| format!("s{n}")).collect();
        let mut asked = request(Method::Get, &format!("/rest/v2/live/live?ids={}", ids.join(",")), "");
        for (name, value) in &client.headers {
            asked.headers.push(name.as_str(), value.as_str());
        }
        let peer = client.peer.unwrap_or("127.0.0.1:9").parse().unwrap();
        self.mail(ToControl::Feed { session, peer, secure: false, request: Box::new(asked) });
    }

    /// Returns the answered feeds, in order.
    fn answered(&self) -> Vec<u32> {
        let of = |mail: &ToWorker| match mail {
            ToWorker::RestReply { conn, .. } => Some(conn.slot),
            _ => None,
        };
        self.posted.iter().filter_map(|(_, mail)| of(mail)).collect()
    }

    /// Stores a user directly, without the API.
    fn plant_user(&mut self, email: &str, picture: usize) {
        let user = crate::control::management::User {
            email: email.to_owned(),
            picture: Some("x".repeat(picture)),
            ..Default::default()
        };
        self.control.records.auxiliary.insert(Key::new(Kind::User, "", email), Auxiliary::User(user));
    }

    fn begin_upload(&mut self, client: &Client, app: &str) -> bool {
        let target = format!("/rest/v2/request?_path={app}/rest/v2/vods/create&name=a.mp4");
        let mut head = request(Method::Post, &target, "");
        head.headers.push("Content-Type", "multipart/form-data; boundary=b");
        for (name, value) in &client.headers {
            head.headers.push(name.as_str(), value.as_str());
        }
        let session = self.send_request("127.0.0.1:9", head);
        self.run_for(Duration::from_millis(5));
        match self.response(session) {
            None => true,
            Some(response) => {
                assert!(text(&response).contains("Not enough system resources"), "{response:?}");
                false
            }
        }
    }
}

#[test]
fn r_66_feeds_wait_in_lines_and_other_requests_do_not_wait_for_them() {
    let (mut rig, admin) = Rig::administered();
    let user = serde_json::json!({"email":"u@a","password":MD5,"userType":"READ_ONLY","scope":"system"});
    let user = rig.add_user_by(&admin, user);
    rig.take();
    let held: Vec<SessionRef> = (0..64).map(|_| rig.feed(&user, 250)).collect();
    assert!(rig.answered().is_empty(), "a question costs its turn nothing");
    let beyond = rig.feed(&user, 250);
    assert_eq!(rig.response(beyond).unwrap().status, 503, "one has so many");
    let stranger = rig.feed(&Client::default(), 250);
    assert_eq!(rig.response(stranger).unwrap().status, 403, "and who has no login none");
    let other = rig.feed(&admin, 1);
    // Other requests are answered while the feeds wait.
    let liveness = rig.send_request("127.0.0.1:9", request(Method::Get, "/rest/v2/liveness", ""));
    assert_eq!(rig.response(liveness).unwrap().status, 200);
    assert!(rig.answered().is_empty());
    let due = rig.control.poll_timeout().unwrap();
    rig.now.mono = due;
    rig.control.handle_timeout(rig.now);
    rig.drain();
    assert_eq!(rig.answered(), [held[0].conn.slot], "a slice is one question for many broadcasts");
    let due = rig.control.poll_timeout().unwrap();
    rig.now.mono = due;
    rig.control.handle_timeout(rig.now);
    rig.drain();
    assert_eq!(rig.answered()[1], other.conn.slot, "then it is the turn of another");
    rig.run_for(Duration::from_millis(50));
    assert_eq!(rig.answered().len(), 65, "all had theirs");
    // The refused feed was forgotten; when it sends a request again, it gets a place.
    rig.take();
    rig.feed_again(&user, held[3], 1);
    rig.run_for(Duration::from_millis(5));
    assert_eq!(rig.response(held[3]).unwrap().status, 200);
    let still = rig.feed(&user, 1);
    assert_eq!(rig.response(still).unwrap().status, 503);
    rig.run_for(Duration::from_secs(6));
    let later = rig.feed(&user, 1);
    rig.run_for(Duration::from_millis(5));
    assert_eq!(rig.response(later).unwrap().status, 200, "the others ask no more");
}

#[test]
fn r_67_administrators_keep_places_for_their_uploads() {
    let (mut rig, admin) = Rig::administered();
    let user = serde_json::json!({"email":"u@a","password":MD5,"userType":"USER","scope":"system"});
    let user = rig.add_user_by(&admin, user);
    let mut taken = 0;
    let mut refused = 0;
    while refused < 4 {
        let app = if (taken + refused) % 2 == 0 { "live" } else { "LiveApp" };
        if rig.begin_upload(&user, app) {
            taken += 1;
        } else {
            refused += 1;
        }
        assert!(taken < 100);
    }
    assert!((28..=36).contains(&taken), "{taken}");
    let own = (0..40).take_while(|_| rig.begin_upload(&admin, "live")).count();
    assert_eq!(own + taken, 40);
    assert!(!rig.begin_upload(&user, "live"));
}

#[test]
fn r_68_lists_of_users_and_of_live_streams_end_where_others_do() {
    let (mut rig, admin) = Rig::administered();
    for n in 0..300 {
        rig.plant_user(&format!("u{n:03}@a"), 20_000);
    }
    let (mut seen, mut offset) = (Vec::new(), 0);
    loop {
        let response = rig.ask_as(&admin, Method::Get, &format!("/rest/v2/user-list?offset={offset}"), "");
        assert!(response.body.len() <= LIST_BYTES_MAX + 2, "{}", response.body.len());
        let page: Vec<serde_json::Value> = serde_json::from_slice(&response.body).unwrap();
        assert!(page.iter().all(|user| user.get("passwordHash").is_none()));
        seen.extend(page.iter().map(|user| user["email"].as_str().unwrap().to_owned()));
        let Some(next) = response.headers.get("next-offset") else { break };
        offset = next.parse().unwrap();
        assert_eq!(offset, seen.len());
    }
    assert!(offset > 0 && seen.len() == 301 && seen.is_sorted(), "{}", seen.len());
    assert_eq!(rig.status_of(&admin, Method::Get, "/rest/v2/user-list?offset=x"), 404);
    // Make so many live streams that a list of them exceeds its maximum length.
    let mut rig = Rig::with(&[("limits.publishers_per_address", "1000000")], &[]);
    rig.initial("admin@a");
    let admin = rig.login(&Client::default(), "admin@a", MD5).1;
    let long = "x".repeat(120);
    for n in 0..15_000 {
        let request = rig.request(&format!("{n:05}{long}"), 0);
        assert!(rig.ask(request).is_ok());
    }
    let list = "/rest/v2/applications/live-streams/live";
    let first = rig.ask_as(&admin, Method::Get, list, "");
    let count = |response: &http::Response| {
        serde_json::from_slice::<Vec<serde_json::Value>>(&response.body).unwrap().len()
    };
    let next: usize = first.headers.get("next-offset").unwrap().parse().unwrap();
    assert!(first.body.len() <= LIST_BYTES_MAX + 2 && next == count(&first));
    let rest = rig.ask_as(&admin, Method::Get, &format!("{list}?offset={next}"), "");
    assert_eq!((count(&rest) + next, rest.headers.get("next-offset")), (15_000, None));
}
