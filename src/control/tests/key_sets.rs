//! Tokens verified with sets of public keys: for the API, for streams and for the management API.

use super::*;
use crate::auth::access::Denial;
use crate::auth::jwks::tests::{ES256, OTHER, RS256, SET};
use crate::jobs::Work;
use crate::mail::NoSubscription;

const URL: &str = "https://issuer.example/keys";
const OF_STREAMS: [(&str, &str); 2] = [("playJwtControlEnabled", "true"), ("jwksURL", URL)];
const OF_API: [(&str, &str); 2] = [("jwtControlEnabled", "true"), ("jwksURL", URL)];

impl Rig {
    /// Returns the jobs that fetch a set.
    fn fetches(&mut self) -> Vec<JobId> {
        let fetched = |work: &Work| matches!(work, Work::Fetch { url } if url.as_str() == URL);
        let (ours, others) = self.files.drain(..).partition(|(_, work)| fetched(work));
        self.files = others;
        let ours: Vec<(JobId, Work)> = ours;
        ours.into_iter().map(|(id, _)| id).collect()
    }

    fn key_set(&mut self, result: Result<&str, &str>) {
        self.run_for(Duration::from_millis(1));
        let [job] = self.fetches()[..] else { panic!("one fetch is under way") };
        let result = result.map(|set| Bytes::copy_from_slice(set.as_bytes())).map_err(str::to_owned);
        self.done(job, Outcome::Fetched(result));
    }

    fn watches(&mut self, token: &str) -> bool {
        match self.play_with("s1", &[("token", token)]) {
            Ok(()) => true,
            Err(NoSubscription::Denied(denial)) => {
                assert_eq!(denial, Denial::Jwt);
                false
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn is_let_in(&mut self, target: &str, header: &'static str, token: &str) -> bool {
        let mut request = request(Method::Get, target, "");
        request.headers.push(header, token);
        let session = self.send_request("127.0.0.1:1", request);
        let (status, body) = self.answer(session).unwrap();
        assert!(status == 200 || (status == 403 && body.contains("JWT Token")), "{status} {body}");
        status == 200
    }
}

#[test]
fn r_06_without_its_set_no_token_is_good_and_with_it_those_of_its_keys_are() {
    let mut rig = Rig::with(&[], &OF_STREAMS);
    rig.publish("s1", 0);
    assert!(!rig.watches(RS256), "the set is not there yet");
    rig.key_set(Err("the status is 500"));
    assert!(!rig.watches(RS256), "nor could it be fetched");
    rig.run_for(secs(30));
    rig.key_set(Ok("<html>"));
    assert!(!rig.watches(RS256), "nor is it a set");
    rig.run_for(secs(30));
    rig.key_set(Ok(SET));
    for (token, good) in [(RS256, true), (ES256, true), (OTHER, false), ("", false), ("x.y.z", false)] {
        assert_eq!(rig.watches(token), good, "{token}");
    }
    let claims = serde_json::from_str(r#"{"streamId":"s1","type":"play"}"#).unwrap();
    assert!(!rig.watches(&crate::auth::jwt::sign(&claims, SET.as_bytes())), "a public key is no secret");
    assert!(rig.play_with("other", &[("token", RS256)]).is_err(), "it is of another stream");
}

#[test]
fn a_set_is_fetched_again_for_a_new_key_and_not_for_each_token() {
    let mut rig = Rig::with(&[], &OF_STREAMS);
    rig.publish("s1", 0);
    rig.key_set(Ok(SET));
    rig.run_for(secs(60));
    assert!(rig.fetches().is_empty(), "nobody asks for another");
    assert!(!rig.watches(OTHER));
    rig.run_for(Duration::from_millis(10));
    // The issuer now signs with another key.
    rig.key_set(Ok(&SET.replace("\"r1\"", "\"r2\"")));
    assert!(rig.watches(OTHER) && !rig.watches(RS256));
    let mut fetched = 0;
    for _ in 0..60 {
        assert!(!rig.watches(RS256));
        rig.run_for(secs(1));
        for job in rig.fetches() {
            fetched += 1;
            rig.done(job, Outcome::Fetched(Err("gone".to_owned())));
        }
    }
    assert!((1..=3).contains(&fetched), "tokens of strangers: {fetched} fetches in a minute");
    assert!(rig.watches(OTHER), "the last set stays good while its server is away");
    for _ in 0..25 * 60 {
        rig.run_for(secs(60));
        for job in rig.fetches() {
            rig.done(job, Outcome::Fetched(Err("gone".to_owned())));
        }
    }
    assert!(!rig.watches(OTHER), "for a day");
}

#[test]
fn r_01_the_api_takes_tokens_of_its_set_and_no_others() {
    let mut rig = Rig::with(&[], &OF_API);
    let version = "/live/rest/v2/version";
    assert!(!rig.is_let_in(version, "Authorization", RS256));
    rig.key_set(Ok(SET));
    assert!(rig.is_let_in(version, "Authorization", RS256));
    assert!(rig.is_let_in(version, "Authorization", &format!("Bearer {ES256}")));
    assert!(!rig.is_let_in(version, "Authorization", OTHER));
    let server = [("server.jwtServerControlEnabled", "true"), ("server.jwksURL", URL)];
    let mut rig = Rig::with(&server, &[]);
    let version = "/rest/v2/system-resources";
    assert!(!rig.is_let_in(version, "ProxyAuthorization", RS256));
    rig.key_set(Ok(SET));
    assert!(rig.is_let_in(version, "ProxyAuthorization", RS256));
    assert!(!rig.is_let_in(version, "ProxyAuthorization", OTHER));
}

#[test]
fn a_set_that_no_setting_names_is_forgotten() {
    let mut rig = Rig::with(&[], &OF_API);
    rig.key_set(Ok(SET));
    for app in ["live", "LiveApp"] {
        let plain = AppSettings::of(schema(), app, &[]).unwrap();
        rig.control.install_app(rig.now, plain);
    }
    rig.run_for(secs(3600));
    assert!(rig.fetches().is_empty());
}

#[test]
fn q_16_a_set_that_is_being_fetched_costs_no_admission_its_place() {
    let receivers = [("live", "http://one.example/ask"), ("LiveApp", "http://two.example/ask")];
    let mut rig = Rig::with(&[("limits.publishers_per_address", "1000")], &OF_STREAMS);
    for (app, url) in receivers {
        let [jwt, keys] = OF_STREAMS;
        let settings = [jwt, keys, ("webhookAuthenticateURL", url)];
        rig.control.install_app(rig.now, AppSettings::of(schema(), app, &settings).unwrap());
    }
    rig.run_for(ms(1));
    assert_eq!(rig.fetches().len(), 1, "it is not answered");
    for round in 0..3 {
        let mut waiting = Vec::new();
        for (app, _) in receivers {
            for n in 0..16 {
                let id = format!("s{round}-{n}");
                let peer = format!("198.51.{n}.7:1").parse().unwrap();
                let request = PublishRequest { key: StreamKey::new(app, &id), peer, ..rig.request(&id, 0) };
                waiting.push(request.session);
                rig.mail(ToControl::Publish(request));
            }
        }
        let asked = std::mem::take(&mut rig.hooks);
        assert_eq!(asked.len(), 32, "round {round}");
        for question in asked {
            rig.done(question.id, Outcome::Posted(Ok(403)));
        }
        let refused =
            |mail: &(WorkerId, ToWorker)| matches!(&mail.1, ToWorker::Verdict { verdict: Err(_), .. });
        assert_eq!(rig.take().iter().filter(|mail| refused(mail)).count(), waiting.len());
    }
}
