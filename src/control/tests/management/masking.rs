//! A walk over every operation, as everybody there is, whose answers come at once, in slices, after the store and after jobs:
//! who may not see a credential is shown none, in whatever form the answer comes.

use super::*;
use crate::control::rest::{Base, Route, routes};
use crate::http;

/// In every credential that is planted; letters of Base32 alone.
const CANARY: &str = "CANARY";
/// Records with which an application's lists are answered in slices.
const MANY: usize = 2100;

/// Someone who asks.
#[derive(Debug, Clone)]
struct Reader {
    name: &'static str,
    client: Client,
    /// Credentials of broadcasts, and those of settings.
    sees: (bool, bool),
    /// Operations of applications are asked for by the panel's way.
    proxied: bool,
}

/// Counts of the walk.
#[derive(Debug, Default)]
struct Counts {
    answers: usize,
    later: usize,
    with_credentials: usize,
}

struct Walk {
    rig: Rig,
    readers: Vec<Reader>,
    /// Credentials that the server has made.
    made: Vec<String>,
}

/// A setting that is a credential, or a URL that may have one.
fn is_planted(name: &str, is_secret: bool) -> bool {
    let name = name.to_lowercase();
    is_secret || name.ends_with("url") || name.ends_with("endpoint")
}

fn planted(keys: impl Iterator<Item = &'static crate::config::Key>) -> Vec<(&'static str, String)> {
    let value = |key: &crate::config::Key| {
        let secret = format!("{CANARY}{CANARY}{CANARY}{CANARY}{CANARY}{CANARY}");
        match key.name {
            "cluster.url" => format!("redis://node:{secret}@203.0.113.9"),
            "webrtc.ice_servers" => format!("turn:203.0.113.9 user {secret}"),
            _ if key.secret => secret,
            // The stream's path is appended to this value, which therefore has no query.
            "httpForwardingBaseURL" => format!("http://203.0.113.9/{CANARY}"),
            _ => format!("http://203.0.113.9/{CANARY}?key={CANARY}"),
        }
    };
    // Keys that need a file, or are refused when they are set.
    let left_out = |name: &str| name == "server.jwksURL" || name == "webhookAuthenticateURL";
    keys.filter(|key| is_planted(key.name, key.secret) && !left_out(key.name))
        .map(|key| (key.name, value(key)))
        .collect()
}

impl Walk {
    fn new(many: bool) -> Self {
        let server = planted(schema().keys(crate::config::Level::Server).iter());
        let app = planted(schema().keys(crate::config::Level::App).iter());
        let borrowed = |pairs: &[(&'static str, String)], more: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            pairs.chain(more).collect::<Vec<_>>()
        };
        let server =
            borrowed(&server, &[("limits.broadcasts", "10000"), ("server.jwtServerControlEnabled", "true")]);
        let app = borrowed(&app, &[("publishKeyRequired", "true")]);
        let refs = |pairs: &'static [(String, String)]| -> Vec<(&'static str, &'static str)> {
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        };
        let (server, app) = (refs(server.leak()), refs(app.leak()));
        let mut rig = Rig::with(&server, &app);
        rig.initial("admin@a");
        let (_, admin) = rig.login(&Client::default(), "admin@a", MD5);
        let mut user = |email: &str, scope: &str, role: &str| {
            let body = serde_json::json!({"email": email, "password": MD5, "appNameUserType": {scope: role}});
            rig.add_user_by(&admin, body)
        };
        let users = [
            ("READ_ONLY of the server", user("r@s", "system", "READ_ONLY"), (false, false)),
            ("USER of the server", user("u@s", "system", "USER"), (true, false)),
            ("READ_ONLY of the application", user("r@a", "live", "READ_ONLY"), (false, false)),
            ("USER of the application", user("u@a", "live", "USER"), (true, false)),
            ("ADMIN of the application", user("a@a", "live", "ADMIN"), (true, true)),
            ("READ_ONLY of another", user("r@o", "LiveApp", "READ_ONLY"), (false, false)),
            ("ADMIN of the server", admin.clone(), (true, true)),
        ];
        let reader = |(name, client, sees)| Reader { name, client, sees, proxied: true };
        let mut readers: Vec<Reader> = users.into_iter().map(reader).collect();
        let here = Client::default();
        let foreign = here.with("Origin", "https://evil.example").with("Sec-Fetch-Site", "cross-site");
        let direct = |name, client, sees| Reader { name, client, sees, proxied: false };
        readers.push(direct("a page of another", foreign, (false, false)));
        readers.push(direct("another machine", Client::at("198.51.100.9:1"), (false, false)));
        readers.push(direct("this machine", here, (true, false)));
        let mut walk = Self { rig, readers, made: Vec::new() };
        walk.plant(many);
        walk
    }

    fn plant(&mut self, many: bool) {
        let url = format!("rtsp://u:{CANARY}@203.0.113.9/{CANARY}");
        let body = serde_json::json!({
            "streamId": "s1", "name": "s1", "username": "u", "password": CANARY, "ipAddr": url,
            "listenerHookURL": format!("http://203.0.113.9/{CANARY}"),
            "playListItemList": [{ "streamUrl": url, "type": "VoD", "name": "x" }],
        });
        self.make("/live/rest/v2/broadcasts/create", &body.to_string());
        let body = serde_json::json!({ "streamId": "s2", "type": "streamSource", "streamUrl": url, "mainTrackStreamId": "s1" });
        self.make("/live/rest/v2/broadcasts/create", &body.to_string());
        let endpoint = format!(r#"{{"rtmpUrl":"rtmp://203.0.113.9/app/{CANARY}"}}"#);
        self.rig.post("/live/rest/v2/broadcasts/s1/rtmp-endpoint", &endpoint);
        let subscriber = format!(r#"{{"subscriberId":"alice","b32Secret":"{CANARY}{CANARY}AAAA"}}"#);
        self.make("/live/rest/v2/broadcasts/s1/subscribers", &subscriber);
        let (_, token) = self.rig.get("/live/rest/v2/broadcasts/s1/token?type=play&expireDate=9999999999");
        self.note(&token, "tokenId");
        if many {
            let list: Vec<_> =
                (0..MANY).map(|n| serde_json::json!({ "streamId": format!("z{n}") })).collect();
            let (status, _) =
                self.rig.post("/live/rest/v2/broadcasts/create-list", &serde_json::json!(list).to_string());
            assert_eq!(status, 200);
        }
        let mut request = self.rig.request("s1", 0);
        let key = self.made.first().cloned().unwrap();
        request.params = vec![("key".to_owned(), key)];
        let stream = self.rig.ask(request).unwrap().stream;
        self.rig.report(0, stream, 1000, 0, 0);
        self.rig.posted.clear();
    }

    fn make(&mut self, target: &str, body: &str) {
        let (status, answer) = self.rig.post(target, body);
        assert_eq!(status, 200, "{answer}");
        self.note(&answer, "publishKey");
    }

    fn note(&mut self, answer: &str, member: &str) {
        let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
        self.made.extend(answer[member].as_str().map(str::to_owned));
    }

    /// Returns true if the answer came later, and the answer.
    fn ask(&mut self, reader: &Reader, method: Method, target: &str, body: &str) -> (bool, http::Response) {
        let mut request = request(method, target, body);
        if method != Method::Get {
            request.headers.push("Content-Type", "application/json");
        }
        for (name, value) in &reader.client.headers {
            request.headers.push(name.as_str(), value.as_str());
        }
        let hold = std::mem::replace(&mut self.rig.hold, true);
        let session = self.rig.send_request(reader.client.peer.unwrap_or("127.0.0.1:9"), request);
        let at_once = self.rig.response(session);
        self.rig.hold = hold;
        self.rig.release();
        if let Some(response) = at_once {
            return (false, response);
        }
        for _ in 0..40 {
            self.serve();
            self.rig.run_for(Duration::from_millis(200));
            if let Some(response) = self.rig.response(session) {
                return (true, response);
            }
        }
        panic!("{}: no answer to {method} {target}", reader.name);
    }

    /// Does what workers and jobs do.
    fn serve(&mut self) {
        self.rig.work();
        let jobs: Vec<_> = std::mem::take(&mut self.rig.admin)
            .into_iter()
            .chain(std::mem::take(&mut self.rig.files).into_iter().map(|(id, _)| id))
            .collect();
        for id in jobs {
            self.rig.done(id, Outcome::Busy);
        }
        let asked: Vec<_> = self
            .rig
            .posted
            .extract_if(.., |(_, mail)| matches!(mail, ToWorker::Connections(_) | ToWorker::Measure { .. }))
            .collect();
        for (worker, mail) in asked {
            match mail {
                ToWorker::Connections(stream) => {
                    let (connections, viewers) = (Vec::new(), Vec::new());
                    self.rig.mail(ToControl::Connections { worker, stream, connections, viewers });
                }
                _ => self.rig.mail(ToControl::Measured(worker, Box::default())),
            }
        }
    }

    /// Asks for an operation in each form, as one reader.
    fn walk(&mut self, reader: &Reader, route: &Route, counts: &mut Counts) {
        for query in [
            "",
            "search=s1&sort_by=name&order_by=asc&type=play&expireDate=9999999999",
            "sort_by=name&order_by=desc&type_by=streamSource&ids=s1",
        ] {
            let mut query = query.to_owned();
            let mut path = format!("{}{}", route.base.prefix(), route.path).replace("{app}", "live");
            for (name, value) in [
                ("{offset}", "0"),
                ("{size}", "50"),
                ("{charSize}", "50"),
                ("{type}", "liveStream"),
                ("{seconds}", "1"),
                ("{email}", "r@s"),
                ("{sid}", "alice"),
                ("{subscriber}", "alice"),
            ] {
                path = path.replace(name, value);
            }
            while let Some((head, (_, tail))) =
                path.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)))
            {
                path = format!("{head}s1{tail}");
            }
            if reader.proxied && route.base == Base::App {
                query = format!("_path={}&{query}", path.trim_start_matches('/'));
                path = "/rest/v2/request".to_owned();
            }
            let body = if route.path.ends_with("create") {
                r#"{"name":"new"}"#
            } else if route.path.ends_with("create-list") {
                "[{}]"
            } else if route.method == Method::Get {
                ""
            } else {
                "{}"
            };
            let (later, response) = self.ask(reader, route.method, &format!("{path}?{query}"), body);
            counts.answers += 1;
            counts.later += usize::from(later);
            let text = String::from_utf8_lossy(&response.body).into_owned();
            let has = text.contains(CANARY) || self.made.iter().any(|made| text.contains(made.as_str()));
            counts.with_credentials += usize::from(has);
            let is_setting = route.base != Base::App && !route.path.starts_with("/live");
            let may = if is_setting { reader.sees.1 } else { reader.sees.0 };
            assert!(may || !has, "{}: {} {path}?{query}, later: {later}: {text}", reader.name, route.method);
        }
    }
}

/// Operations that end what others are asked about, and change what all see.
fn is_walked(route: &Route, reader: &Reader) -> bool {
    let writes = route.method != Method::Get;
    // Logins and files have tests of their own.
    let left_out =
        ["/users/logout", "/users/authenticate", "/users/initial", "/vods/create", "/ssl-settings"];
    let harmless = !writes || !(reader.sees.0 || reader.sees.1);
    !left_out.contains(&route.path) && harmless && route.method != Method::Delete
}

#[test]
fn r_49_no_answer_in_any_form_shows_a_credential_to_who_may_not_see_it() {
    for many in [false, true] {
        let mut walk = Walk::new(many);
        for reader in walk.readers.clone() {
            let mut counts = Counts::default();
            let walked: Vec<&Route> = routes().filter(|route| is_walked(route, &reader)).collect();
            for route in &walked {
                walk.walk(&reader, route, &mut counts);
            }
            println!(
                "{} records, {}: {} routes, {counts:?}",
                if many { MANY } else { 2 },
                reader.name,
                walked.len()
            );
            let sees = reader.sees.0 || reader.sees.1;
            assert_eq!(counts.with_credentials > 0, sees, "{}: {counts:?}", reader.name);
            assert!(counts.later > 0 || reader.client.peer.is_some(), "{}: {counts:?}", reader.name);
        }
        walk.signalling();
    }
}

impl Walk {
    /// The record that the SDK's socket shows.
    fn signalling(&mut self) {
        let session = self.rig.session(0);
        let (role, offset, size) = (String::new(), 0, 50);
        let questions = [
            Question::Record,
            Question::Subtracks { role: role.clone(), offset, size },
            Question::SubtrackCount(role),
            Question::Subscribers { offset, size },
            Question::SubscriberCount,
            Question::Room,
            Question::Media,
        ];
        for question in questions {
            let (key, let_in) = (StreamKey::new("live", "s1"), vec!["s1".to_owned()]);
            self.rig.mail(ToControl::Ask { session, key, let_in, question });
            let shown = text(&self.rig.response(session).unwrap());
            assert!(
                !shown.contains(CANARY) && self.made.iter().all(|made| !shown.contains(made.as_str())),
                "{shown}"
            );
        }
    }
}
