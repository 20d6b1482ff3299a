//! Credentials in answers to those who may only read: the places are kept, the values are not.

use serde_json::Value;

use crate::http::Response;

/// What stands for a credential.
const MASK: &str = "***";
/// Members whose whole value is one.
const SECRETS: [&str; 3] = ["password", "b32Secret", "publishKey"];
/// Members that are URLs: keys of streams and passwords are behind the scheme.
const URLS: [&str; 5] = ["rtmpUrl", "endpointUrl", "streamUrl", "listenerHookURL", "url"];

/// The answer without the credentials in its JSON; anything else is as it was.
pub(super) fn masked(mut response: Response) -> Response {
    if let Ok(mut value) = serde_json::from_slice::<Value>(&response.body) {
        mask(&mut value);
        response.body = value.to_string().into();
    }
    response
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if let Value::String(text) = value {
                    if SECRETS.contains(&name.as_str()) {
                        hide(text, "");
                    } else if URLS.contains(&name.as_str()) {
                        let host = visible(text).to_owned();
                        hide(text, &host);
                    }
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn hide(text: &mut String, visible: &str) {
    if !text.is_empty() {
        *text = format!("{visible}{MASK}");
    }
}

/// The scheme and the host of a URL, with what is between them and the rest; nothing of what is no URL.
fn visible(url: &str) -> &str {
    let Some(at) = url.find("://").and_then(|at| at.checked_add(3)) else { return "" };
    let Some((scheme, rest)) = url.split_at_checked(at) else { return "" };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A user and a password are before the host.
    if authority.contains('@') {
        scheme
    } else {
        url.get(..at.saturating_add(authority.len())).unwrap_or(scheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_and_all_else_stays_in_its_order() {
        let text = r#"[{"z":1,"password":"p","publishKey":"k","username":"u","streamUrl":"rtsp://u:p@cam/1","endPointList":[{"endpointUrl":"rtmp://a.example:1935/app/key","status":"x"}],"listenerHookURL":"http://h?secret=1","name":null,"url":""}]"#;
        let wanted = r#"[{"z":1,"password":"***","publishKey":"***","username":"u","streamUrl":"rtsp://***","endPointList":[{"endpointUrl":"rtmp://a.example:1935***","status":"x"}],"listenerHookURL":"http://h***","name":null,"url":""}]"#;
        assert_eq!(masked(Response::json(200, text.to_owned())).body, wanted);
        assert_eq!(masked(Response::text(200, "plain".to_owned())).body, "plain");
    }
}
