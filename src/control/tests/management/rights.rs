//! Rights that are removed while a change that needs them is being committed, and answers that are not cached.

use super::*;

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
