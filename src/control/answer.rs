//! Requesters of the API, and the small objects that answers carry (docs/rest.md).

use std::net::SocketAddr;

use bytes::Bytes;
use serde::Serialize;

use super::mask::Requester;
use crate::http::Response;

/// The session that made a request, and properties of the request's connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// The session that waits for the answer, with its right to see credentials.
    pub(super) requester: Requester,
    /// The address of the connection.
    pub(super) peer: SocketAddr,
    /// True if the request came over TLS.
    pub(super) secure: bool,
}

/// The result of a handler.
#[derive(Debug)]
pub(super) enum Reply {
    /// The answer, to be sent now.
    Now(Response),
    /// The answer follows once the change is stored.
    Later,
}

/// The object `Result` of Ant Media Server's API, with members in the same order as there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::control) struct Outcome<'a> {
    success: bool,
    message: Option<&'a str>,
    #[serde(rename = "dataId")]
    data_id: Option<&'a str>,
    #[serde(rename = "errorId")]
    error_id: i32,
}

impl<'a> Outcome<'a> {
    /// Makes the result of a successful operation.
    pub(in crate::control) const fn success() -> Self {
        Self { success: true, message: Some(""), data_id: Some(""), error_id: 0 }
    }

    /// Makes the result of a failed operation.
    pub(in crate::control) const fn failure(message: &'a str) -> Self {
        Self { success: false, message: Some(message), data_id: Some(""), error_id: 0 }
    }

    /// Sets the message; `None` is null.
    pub(in crate::control) const fn message(self, message: Option<&'a str>) -> Self {
        Self { message, ..self }
    }

    /// Sets `dataId`: the id of the object that the answer is about.
    pub(in crate::control) const fn data_id(self, id: &'a str) -> Self {
        Self { data_id: Some(id), ..self }
    }

    /// Sets `dataId` to null.
    pub(in crate::control) const fn no_data_id(self) -> Self {
        Self { data_id: None, ..self }
    }

    /// Sets the error number.
    pub(in crate::control) const fn error_id(self, id: i32) -> Self {
        Self { error_id: id, ..self }
    }

    /// Returns a response with the members of `object` followed by the members of this result, because some clients
    /// expect the object and others the result.
    pub(in crate::control) fn behind(self, mut object: Vec<u8>) -> Response {
        let Ok(own) = serde_json::to_vec(&self) else { return Response::error(500, "Internal Server Error") };
        if let (Some(b'}'), Some(members)) = (object.pop(), own.strip_prefix(b"{")) {
            object.push(b',');
            object.extend_from_slice(members);
        }
        Response::json(200, object)
    }

    /// Returns the result as a response; application operations use status 200 even for failures.
    pub(in crate::control) fn response(self, status: u16) -> Response {
        json(status, &self)
    }
}

/// Makes a response with an object as JSON.
pub(in crate::control) fn json<T: Serialize>(status: u16, object: &T) -> Response {
    match serde_json::to_vec(object) {
        Ok(bytes) => Response::json(status, Bytes::from(bytes)),
        Err(_) => Response::error(500, "Internal Server Error"),
    }
}

/// The object `{"number":N}`.
#[derive(Debug, Serialize)]
pub(in crate::control) struct SimpleStat {
    pub(in crate::control) number: usize,
}

/// The object `Version` of the API.
#[derive(Debug, Serialize)]
pub(in crate::control) struct Version {
    #[serde(rename = "versionName")]
    pub(in crate::control) name: &'static str,
    #[serde(rename = "versionType")]
    pub(in crate::control) kind: &'static str,
    #[serde(rename = "buildNumber")]
    pub(in crate::control) build: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_reference_s_members_in_its_order() {
        let text = |o: Outcome<'_>| String::from_utf8(o.response(200).body.to_vec()).unwrap();
        assert_eq!(text(Outcome::success()), r#"{"success":true,"message":"","dataId":"","errorId":0}"#);
        assert_eq!(
            text(Outcome::success().message(None).data_id("custom1")),
            r#"{"success":true,"message":null,"dataId":"custom1","errorId":0}"#
        );
        assert_eq!(
            text(Outcome::failure("no").error_id(-4)),
            r#"{"success":false,"message":"no","dataId":"","errorId":-4}"#
        );
        assert_eq!(
            Outcome::success().data_id("a").behind(br#"{"streamId":"a"}"#.to_vec()).body,
            r#"{"streamId":"a","success":true,"message":"","dataId":"a","errorId":0}"#
        );
    }
}
