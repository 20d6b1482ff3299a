use std::time::{Duration, Instant};

use crypto::Seed;
use proptest::prelude::*;

use super::*;
use crate::testing::start;

const URI: &str = "rtsp://10.0.0.1:8554/live/s?token=a";

fn read_one(field: &str) -> Challenge {
    let mut all = Challenge::read_all([field].into_iter());
    assert_eq!(all.len(), 1, "{field}");
    all.remove(0)
}

fn keeper(allows_basic: bool) -> Gatekeeper {
    Gatekeeper::new(start(), &Seed::from_number(1), "millstream", allows_basic)
}

fn answerer(password: &str) -> Answerer {
    let credentials = Credentials { user: "user".to_owned(), password: password.to_owned() };
    Answerer::new(credentials, true, &Seed::from_number(2))
}

fn verify(keeper: &Gatekeeper, now: Instant, answer: &str) -> Verdict {
    match Authorization::read(answer) {
        Some(authorization) => keeper.verify(now, ("DESCRIBE", URI), &authorization, ("user", "pass")),
        None => Verdict::Refused,
    }
}

/// Checks the examples of RFC 2617 §3.5 and RFC 7616 §3.9.1.
#[test]
fn digest_vectors() {
    let mut computation = Computation {
        algorithm: Algorithm::Md5,
        realm: "testrealm@host.com",
        nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        method: "GET",
        uri: "/dir/index.html",
        auth: Some(("00000001", "0a4f113b")),
    };
    assert_eq!(computation.response("Mufasa", "Circle Of Life"), "6629fae49393a05397450978507c4ef1");
    // A response as in RFC 2069; the expected value is from an erratum of that RFC.
    computation.auth = None;
    assert_eq!(computation.response("Mufasa", "CircleOfLife"), "1949323746fe6a43ef61f9606e7febea");
    let computation = Computation {
        algorithm: Algorithm::Sha256,
        realm: "http-auth@example.org",
        nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        method: "GET",
        uri: "/dir/index.html",
        auth: Some(("00000001", "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ")),
    };
    assert_eq!(
        computation.response("Mufasa", "Circle of Life"),
        "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"
    );
}

#[test]
fn challenges_of_cameras_are_read() {
    let hikvision = read_one("Digest realm=\"IP Camera(23435)\", nonce=\"8b5a\", stale=\"FALSE\"");
    let Challenge::Digest(hikvision) = hikvision else { panic!() };
    assert_eq!((hikvision.realm.as_str(), hikvision.stale), ("IP Camera(23435)", false));
    assert_eq!((hikvision.algorithm, hikvision.names_algorithm), (Algorithm::Md5, false));
    let axis =
        read_one("Digest realm=\"AXIS_ACCC8E\", nonce=\"00a1, b\", stale=true, algorithm=MD5, qop=\"auth\"");
    let Challenge::Digest(axis) = axis else { panic!() };
    assert_eq!((axis.nonce.as_str(), axis.stale, axis.qop_auth), ("00a1, b", true, true));
    assert_eq!(read_one("basic realm=\"a \\\"b\\\"\""), Challenge::Basic { realm: "a \"b\"".to_owned() });
    assert_eq!(read_one("Basic"), Challenge::Basic { realm: String::new() });
    for foreign in [
        "Bearer realm=\"a\"",
        "Digest realm=\"a\"",
        "Digest realm=\"a\", nonce=\"b\", algorithm=MD5-sess",
        "Digest realm=\"a\", nonce=\"b\", algorithm=SHA-512-256",
        "Digest realm=\"a\", nonce=\"b\", qop=\"auth-int\"",
        "",
    ] {
        assert_eq!(Challenge::read_all([foreign].into_iter()), vec![], "{foreign}");
    }
}

#[test]
fn the_strongest_of_several_challenges_is_chosen() {
    let one_field = "Basic realm=\"a\", Digest realm=\"a\", nonce=\"1\", Digest realm=\"a\", nonce=\"2\", algorithm=SHA-256";
    let all =
        Challenge::read_all([one_field, "Digest realm=\"a\", nonce=\"3\", algorithm=SHA-256"].into_iter());
    assert_eq!(all.len(), 4);
    let Some(Challenge::Digest(digest)) = Challenge::strongest(all) else { panic!() };
    assert_eq!((digest.algorithm, digest.nonce.as_str()), (Algorithm::Sha256, "2"));
    let many = vec!["Basic realm=\"a\""; 1000];
    assert_eq!(Challenge::read_all(many.into_iter()).len(), crate::limits::CHALLENGES_MAX);
}

#[test]
fn each_challenge_is_answered_so_that_it_opens() {
    let now = start();
    for index in 0..3 {
        let keeper = keeper(true);
        let field = keeper.challenges(now, false)[index].to_string();
        let mut client = answerer("pass");
        assert_eq!(client.answer("DESCRIBE", URI), None);
        assert!(client.challenged(vec![read_one(&field)], false));
        let answer = client.answer("DESCRIBE", URI).unwrap();
        assert_eq!(verify(&keeper, now, &answer), Verdict::Accepted, "{field}");
        let mut wrong = answerer("pasS");
        assert!(wrong.challenged(vec![read_one(&field)], false));
        assert_eq!(verify(&keeper, now, &wrong.answer("DESCRIBE", URI).unwrap()), Verdict::Refused);
        assert!(!wrong.challenged(vec![read_one(&field)], true), "once for each challenge");
        assert!(!format!("{client:?} {keeper:?}").contains("pass"));
    }
}

#[test]
fn an_old_nonce_is_stale_and_a_new_one_is_answered() {
    let (keeper, now) = (keeper(false), start());
    let mut client = answerer("pass");
    assert!(client.challenged(keeper.challenges(now, false), false));
    let answer = client.answer("DESCRIBE", URI).unwrap();
    let later = now + Duration::from_secs(301);
    assert_eq!(verify(&keeper, later, &answer), Verdict::Stale);
    assert!(client.challenged(keeper.challenges(later, true), true));
    assert_eq!(verify(&keeper, later, &client.answer("DESCRIBE", URI).unwrap()), Verdict::Accepted);
}

#[test]
fn p_12_what_was_not_made_for_this_challenge_is_refused() {
    let (own, now) = (keeper(false), start());
    let mut client = answerer("pass");
    assert!(client.challenged(own.challenges(now, false), false));
    let good = client.answer("DESCRIBE", URI).unwrap();
    assert_eq!(verify(&own, now, &good), Verdict::Accepted);
    // A nonce made by another connection's gatekeeper is refused.
    let other = Gatekeeper::new(now, &Seed::from_number(9), "millstream", false);
    assert_eq!(verify(&other, now, &good), Verdict::Refused);
    for (from, to) in [
        ("realm=\"millstream\"", "realm=\"other\""),
        ("algorithm=SHA-256", "algorithm=MD5"),
        ("algorithm=SHA-256, ", ""),
        ("algorithm=SHA-256", "algorithm=none"),
        ("nonce=\"0", "nonce=\"1"),
        ("nonce=\"", "nonce=\"\", x=\""),
        ("username=\"user\"", "username=\"admin\""),
        ("username=\"user\"", "username=\"user\", username=\"user\""),
        ("/live/s", "/live/t"),
        ("response=\"", "response=\"0"),
        ("qop=auth", "qop=auth-int"),
        ("qop=auth, nc=00000001, ", ""),
        ("Digest ", "Digest"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        assert_eq!(verify(&own, now, &bad), Verdict::Refused, "{to}");
    }
    // The proof does not hold for another method or another stream.
    let authorization = Authorization::read(&good).unwrap();
    for (method, uri) in [("ANNOUNCE", URI), ("DESCRIBE", "rtsp://10.0.0.1:8554/live/s2?token=a")] {
        assert_eq!(own.verify(now, (method, uri), &authorization, ("user", "pass")), Verdict::Refused);
    }
    assert_eq!(verify(&own, now, "Basic dXNlcjpwYXNz"), Verdict::Refused, "not offered");
    assert_eq!(verify(&keeper(true), now, "Basic dXNlcjpwYXNz"), Verdict::Accepted);
    assert_eq!(Authorization::read("Basic !"), None);
    assert_eq!(Authorization::read("Basic dXNlcg=="), None);
}

#[test]
fn a_proof_for_the_session_covers_its_tracks() {
    let (keeper, now) = (keeper(false), start());
    let mut client = answerer("pass");
    assert!(client.challenged(keeper.challenges(now, false), false));
    for (proved, asked, verdict) in [
        ("rtsp://h/live/s/", "rtsp://h/live/s/trackID=0", Verdict::Accepted),
        ("rtsp://h/live/s", "rtsp://h/live/s?token=a/streamid=0", Verdict::Accepted),
        ("/live/s", "rtsp://h/live/s", Verdict::Accepted),
        ("rtsp://h/live/s", "rtsp://h/live/secret", Verdict::Refused),
        ("", "rtsp://h/live/s", Verdict::Refused),
        ("*", "rtsp://h/live/s", Verdict::Refused),
    ] {
        let authorization = Authorization::read(&client.answer("SETUP", proved).unwrap()).unwrap();
        assert_eq!(
            keeper.verify(now, ("SETUP", asked), &authorization, ("user", "pass")),
            verdict,
            "{proved}"
        );
    }
}

proptest! {
    #[test]
    fn fields_read_as_they_were_written(
        text in "[ -~]{0,20}",
        nonce in "[ -~]{1,20}",
        opaque in prop::option::of("[ -~]{0,10}"),
        sha256: bool,
        auth in prop::option::of(("[0-9a-f]{8}", "[ -~]{1,12}")),
        stale: bool,
    ) {
        let algorithm = if sha256 { Algorithm::Sha256 } else { Algorithm::Md5 };
        let challenge = Challenge::Digest(DigestChallenge {
            realm: text.clone(), nonce: nonce.clone(), opaque: opaque.clone(), algorithm,
            names_algorithm: true, qop_auth: auth.is_some(), stale,
        });
        prop_assert_eq!(read_one(&challenge.to_string()), challenge);
        let authorization = Authorization::Digest(DigestAnswer {
            user: text.clone(), realm: text.clone(), nonce, uri: text.clone(), response: text.clone(),
            algorithm: Some(algorithm), auth, opaque,
        });
        prop_assert_eq!(Authorization::read(&authorization.write()), Some(authorization));
        let basic = Authorization::Basic(Credentials { user: text.replace(':', ""), password: text });
        prop_assert_eq!(Authorization::read(&basic.write()), Some(basic));
    }

    #[test]
    fn p_12_any_text_is_read_or_refused(text in "(Digest |Basic )?[ -~]{0,120}") {
        let _ = (Challenge::read_all([text.as_str()].into_iter()), Authorization::read(&text));
    }
}
