//! Rights that are removed while a change that needs them is being committed, and answers that are not cached.

use super::*;
use crate::config::{Level, Origin, ServerSettings, Values};

#[test]
fn r_55_of_two_administrators_that_delete_each_other_one_stays() {
    for (first, second) in [
        (Method::Delete, Method::Delete),
        // Each administrator gives the other a read-only role.
        (Method::Put, Method::Put),
        (Method::Put, Method::Delete),
    ] {
        let (mut rig, ours) = Rig::administered();
        let theirs = rig.add_user_by(
            &ours,
            serde_json::json!({"email": "other@a", "password": MD5, "appNameUserType": {"system": "ADMIN"}}),
        );
        let mut ask = |client: &Client, method: Method, target: &str| {
            let body = match method {
                Method::Put => {
                    format!(r#"{{"email":"{target}","appNameUserType":{{"system":"READ_ONLY"}}}}"#)
                }
                _ => String::new(),
            };
            let path = if method == Method::Put {
                "/rest/v2/users".to_owned()
            } else {
                format!("/rest/v2/users/{target}")
            };
            let mut request = request(method, &path, &body);
            request.headers.push("Content-Type", "application/json");
            client
                .headers
                .iter()
                .for_each(|(name, value)| request.headers.push(name.as_str(), value.as_str()));
            rig.send_request("127.0.0.1:9", request)
        };
        // Both changes are requested before either is committed.
        let (a, b) = (ask(&ours, first, "other@a"), ask(&theirs, second, "admin@a"));
        rig.run_for(Duration::from_secs(1));
        let (a, b) = (rig.response(a).unwrap(), rig.response(b).unwrap());
        assert_eq!((a.status, b.status), (200, 403), "{first} {second}: {a:?} {b:?}");
        assert_eq!(rig.status_of(&ours, Method::Get, "/rest/v2/user-list"), 200);
    }
}

#[test]
fn r_56_no_answer_of_the_api_is_kept() {
    let (mut rig, admin) = Rig::administered();
    for path in
        ["/rest/v2/user-list", "/live/rest/v2/broadcasts/count", "/live/rest/v2/nothing", "/rest/v2/x"]
    {
        let response = rig.ask_as(&admin, Method::Get, path, "");
        assert_eq!(response.headers.all("cache-control").collect::<Vec<_>>(), ["no-store"], "{path}");
    }
}

const SETTINGS: &str = "/rest/v2/applications/settings/live";

impl Rig {
    /// Sends a change of settings, which is answered once its job is done.
    fn change_settings(&mut self, client: &Client, path: &str, body: &serde_json::Value) -> SessionRef {
        let mut request = request(Method::Post, path, &body.to_string());
        request.headers.push("Content-Type", "application/json");
        client.headers.iter().for_each(|(name, value)| request.headers.push(name.as_str(), value.as_str()));
        self.send_request("127.0.0.1:9", request)
    }

    /// Completes the only waiting administrative job.
    fn admin_done(&mut self, outcome: AdminOutcome) {
        let [job] = std::mem::take(&mut self.admin)[..] else { panic!("not one job") };
        self.done(job, Outcome::Admin(outcome));
    }
}

/// Settings of the application `live`, as its file has them.
fn settings_of(values: &[(&str, &str)]) -> AdminOutcome {
    let mut file = Values::new(schema(), Level::App, "file");
    values.iter().for_each(|(key, value)| file.set(key, (*value).to_owned(), Origin::File));
    AdminOutcome::App(Box::new(AppSettings::from_values("live", 0, file).unwrap()))
}

#[test]
fn only_an_administrator_of_the_server_can_make_an_application_use_the_machines_role() {
    let (mut rig, admin) = Rig::administered();
    let tenant = rig.add_user_by(
        &admin,
        serde_json::json!({"email": "t@a", "password": MD5, "appNameUserType": {"live": "ADMIN"}}),
    );
    let uploads = |bucket: &str, key: &str| serde_json::json!({"s3RecordingEnabled": true, "s3BucketName": bucket, "s3AccessKey": key, "s3SecretKey": key});
    let refused = |rig: &mut Rig, body: &serde_json::Value| {
        let answer = text(&rig.ask_as(&tenant, Method::Post, SETTINGS, &body.to_string()));
        assert!(answer.contains(r#""success":false"#) && answer.contains("machine's role"), "{answer}");
        assert!(rig.admin.is_empty());
    };
    refused(&mut rig, &uploads("theirs", ""));
    // Own keys are free to use.
    rig.change_settings(&tenant, SETTINGS, &uploads("own", "key"));
    rig.admin_done(AdminOutcome::Failed("for this test".to_owned()));
    let with_role = [("s3RecordingEnabled", "true"), ("s3BucketName", "theirs")];
    let asked = rig.change_settings(&admin, SETTINGS, &uploads("theirs", ""));
    rig.admin_done(settings_of(&with_role));
    assert!(text(&rig.response(asked).unwrap()).contains(r#""success":true"#));
    // The application's administrator can change other settings, and switch the uploads off, but not their target.
    refused(&mut rig, &uploads("others", ""));
    let mut other = uploads("theirs", "");
    other["s3Endpoint"] = "http://198.51.100.1".into();
    refused(&mut rig, &other);
    let mut other = uploads("theirs", "");
    other["coalesceMs"] = 20.into();
    for body in [other, serde_json::json!({})] {
        rig.change_settings(&tenant, SETTINGS, &body);
        rig.admin_done(settings_of(&with_role));
    }
}

#[test]
fn of_two_changes_of_settings_at_once_the_second_is_refused() {
    let (mut rig, admin) = Rig::administered();
    let server = AdminOutcome::Server(Box::new(ServerSettings::with(&[]).unwrap()));
    for (path, outcome) in [(SETTINGS, settings_of(&[])), ("/rest/v2/server-settings", server)] {
        let body = serde_json::json!({});
        let first = rig.change_settings(&admin, path, &body);
        let second = rig.change_settings(&admin, path, &body);
        let second = rig.response(second).unwrap();
        assert_eq!((second.status, second.headers.get("retry-after")), (503, Some("1")), "{path}");
        assert!(rig.response(first).is_none());
        for outcome in [outcome, AdminOutcome::Failed("full".to_owned())] {
            rig.admin_done(outcome);
            rig.change_settings(&admin, path, &body);
        }
        rig.admin_done(AdminOutcome::Failed("full".to_owned()));
    }
}

#[test]
fn settings_of_an_application_that_was_deleted_while_they_were_saved_do_not_bring_it_back() {
    let (mut rig, admin) = Rig::administered();
    let asked = rig.change_settings(&admin, SETTINGS, &serde_json::json!({}));
    let [save] = std::mem::take(&mut rig.admin)[..] else { panic!("not one job") };
    let mut delete = request(Method::Delete, "/rest/v2/applications/live", "");
    admin.headers.iter().for_each(|(name, value)| delete.headers.push(name.as_str(), value.as_str()));
    rig.send_request("127.0.0.1:9", delete);
    rig.done(save, Outcome::Admin(settings_of(&[])));
    assert!(text(&rig.response(asked).unwrap()).contains(r#""success":false"#));
    assert!(!text(&rig.ask_as(&admin, Method::Get, "/rest/v2/applications", "")).contains(r#""live""#));
}
