//! Applications that are not started because their settings are lost.

use super::*;
use crate::config::LostApp;
use crate::http;

/// Makes a rig in which the application `tenant` was not started.
fn with_a_lost_one() -> (Rig, Client) {
    let mut rig =
        Rig::start(ControlConfig { lost: ["tenant".into()].into(), ..config(&[], &[]) }, Memory::new());
    rig.initial("admin@a");
    let (_, admin) = rig.login(&Client::default(), "admin@a", MD5);
    (rig, admin)
}

fn said(response: &http::Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

impl Rig {
    /// Sends a request, and answers its job.
    fn administer(&mut self, admin: &Client, method: Method, target: &str, outcome: AdminOutcome) -> String {
        let mut request = request(method, target, "");
        for (name, value) in &admin.headers {
            request.headers.push(name.as_str(), value.as_str());
        }
        let session = self.send_request("127.0.0.1:9", request);
        for id in std::mem::take(&mut self.admin) {
            self.done(id, Outcome::Admin(outcome.clone()));
        }
        said(&self.response(session).expect("an answer"))
    }

    fn reload(&mut self, apps: &[&str], lost: &[&str]) {
        self.control.reload();
        self.drain();
        let read = crate::config::Config {
            home: "/home".into(),
            server: self.control.cx.config.server.clone(),
            apps: apps.iter().map(|name| Arc::new(AppSettings::of(schema(), name, &[]).unwrap())).collect(),
            lost: lost
                .iter()
                .map(|name| LostApp { name: (*name).into(), reason: "empty".to_owned() })
                .collect(),
            used: true,
            warnings: Vec::new(),
        };
        let id = self.admin.pop().expect("a job");
        self.done(id, Outcome::Admin(AdminOutcome::Config(Box::new(read))));
    }
}

#[test]
fn c_11_an_application_that_was_not_started_can_be_deleted_and_not_made_again() {
    let (mut rig, admin) = with_a_lost_one();
    let path = "/rest/v2/applications/tenant";
    let made = said(&rig.ask_as(&admin, Method::Post, path, ""));
    assert!(made.contains("Application with the same name already exists"), "{made}");
    assert!(rig.admin.is_empty());
    let failed = rig.administer(&admin, Method::Delete, path, AdminOutcome::Failed("disk".into()));
    assert!(failed.contains(r#""success":false"#), "{failed}");
    let deleted = rig.administer(&admin, Method::Delete, path, AdminOutcome::Done);
    assert!(deleted.contains(r#""success":true"#), "{deleted}");
    let gone = said(&rig.ask_as(&admin, Method::Delete, path, ""));
    assert!(gone.contains("AppSettings is not available for app: tenant"), "{gone}");
    let settings = AppSettings::of(schema(), "tenant", &[]).unwrap();
    let made = rig.administer(&admin, Method::Post, path, AdminOutcome::App(Box::new(settings)));
    assert!(made.contains(r#""success":true"#), "{made}");
}

#[test]
fn c_11_settings_that_are_lost_while_the_server_runs_stay_in_use() {
    let (mut rig, admin) = with_a_lost_one();
    let apps = |rig: &mut Rig| said(&rig.ask_as(&admin, Method::Get, "/rest/v2/applications", ""));
    rig.reload(&["LiveApp", "tenant"], &["live"]);
    assert_eq!(apps(&mut rig), r#"{"applications":["LiveApp","live","tenant"]}"#, "one is there again");
    rig.reload(&["LiveApp", "live"], &["tenant"]);
    assert_eq!(apps(&mut rig), r#"{"applications":["LiveApp","live","tenant"]}"#);
    rig.reload(&["LiveApp"], &["tenant"]);
    assert_eq!(
        apps(&mut rig),
        r#"{"applications":["LiveApp","tenant"]}"#,
        "a folder that was removed is a decision"
    );
}
