//! Paths of the API.

use super::call::PARAMS_MAX;

/// Splits an API path into application and rest: `/{app}/rest/v2{rest}`.
pub(super) fn split_path(path: &str) -> Option<(&str, &str)> {
    let (app, rest) = path.strip_prefix('/')?.split_once('/')?;
    Some((app, rest_of(rest)?))
}

/// Splits a path of players into application and rest: `/{app}/analytic{rest}`.
pub(super) fn players_of(path: &str) -> Option<(&str, &str)> {
    let (app, rest) = path.strip_prefix('/')?.split_once('/')?;
    let rest = rest.strip_prefix("analytic")?;
    (rest.is_empty() || rest.starts_with('/')).then_some((app, rest))
}

/// Returns the part of a path after `rest`, including the slash; `None` if the path has another first segment.
pub(super) fn rest_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("rest")?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Returns the parameters, if the path matches the pattern.
pub(super) fn match_path<'a>(pattern: &str, path: &'a str) -> Option<[&'a str; PARAMS_MAX]> {
    let mut params = [""; PARAMS_MAX];
    let mut free = params.iter_mut();
    let mut parts = path.split('/');
    for expected in pattern.split('/') {
        let part = parts.next()?;
        if expected.starts_with('{') {
            if part.is_empty() {
                return None;
            }
            *free.next()? = part;
        } else if expected != part {
            return None;
        }
    }
    if parts.next().is_some() { None } else { Some(params) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_22_paths_match_exactly() {
        let matched = match_path("/broadcasts/{id}/stop", "/broadcasts/a/stop").unwrap();
        assert_eq!(matched[0], "a");
        for path in
            ["/broadcasts", "/broadcasts/", "/broadcasts//stop", "/Broadcasts/a/stop", "/broadcasts/a/stop/x"]
        {
            assert_eq!(match_path("/broadcasts/{id}/stop", path), None, "{path}");
        }
        assert_eq!(split_path("/live/rest/v2/x"), Some(("live", "/v2/x")));
        assert_eq!(split_path("/live/restv2/x"), None);
        assert_eq!(split_path("/rest/v2/x"), None);
    }
}
