//! Checks README.md and the pages of docs/: the API calls, commands and pages that they mention exist. Dashboards and
//! alerts use only the metrics of docs/metrics.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millstream::cli;
use millstream::control::{Base, routes};
use millstream::http::Method;
use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Address of the server in examples.
const SERVER: &str = "http://localhost:5080";

/// Returns all pages: those in the root folder, such as README.md, and those in docs/.
fn pages() -> Vec<(PathBuf, String)> {
    let of = |folder: &str| {
        let entries = fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "md"))
    };
    of(".").chain(of("docs")).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the commands in examples, which are indented by four. Joins continued lines, and removes the prompt.
fn commands(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        let Some(example) = line.strip_prefix("    ") else {
            continued = false;
            continue;
        };
        let example = example.trim_start();
        let example = example.strip_prefix("$ ").unwrap_or(example);
        match found.last_mut().filter(|_| continued) {
            Some(last) => last.push_str(example),
            None => found.push(example.to_owned()),
        }
        continued = example.ends_with('\\');
        if continued {
            found.last_mut().unwrap().pop();
        }
    }
    found
}

/// Returns the method and path if the command is a call of `curl` to the server of the examples.
fn calls(command: &str) -> Option<(Method, String)> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let url = command.split(SERVER).nth(1)?.split(['\'', '"', ' ', '?', '`']).next()?;
    let after =
        |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1).copied());
    let method = match after("-X") {
        Some("POST") => Method::Post,
        Some("PUT") => Method::Put,
        Some("DELETE") => Method::Delete,
        Some(other) => panic!("{other}: {command}"),
        None if words.iter().any(|word| ["-d", "-F", "--data"].contains(word)) => Method::Post,
        None => Method::Get,
    };
    Some((method, url.to_owned()))
}

/// True if a pattern such as `/broadcasts/{id}` matches a path.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len()
        && pattern.iter().zip(&path).all(|(part, is)| part == is || part.starts_with('{'))
}

/// True if the API has this route. The server-sent events for panels have a separate mount.
fn is_route(method: Method, path: &str) -> bool {
    let has = |base: Base| {
        routes().filter(move |route| route.base == base && route.method == method).map(move |route| {
            let prefix = base.prefix();
            format!("{prefix}{}", route.path)
        })
    };
    let mut all = has(Base::Root).chain(has(Base::Server)).chain(has(Base::App));
    path.starts_with("/rest/v2/live/") || all.any(|pattern| fits(&pattern, path))
}

#[test]
fn calls_of_the_documentation_are_routes() {
    let mut seen = 0;
    for (page, text) in pages() {
        for command in commands(&text).iter().filter(|command| command.contains("curl ")) {
            let Some((method, path)) = calls(command) else { continue };
            seen += 1;
            let is_there = path == "/metrics" || is_route(method, &path);
            assert!(is_there, "{}: {method} {path} is no route", page.display());
        }
    }
    assert!(seen >= 15, "only {seen} calls were found: the examples are written in another way");
    assert!(!is_route(Method::Get, "/live/rest/v2/liveness") && is_route(Method::Get, "/rest/v2/liveness"));
}

/// Checks the commands of our program in the pages. Words in capitals are placeholders.
#[test]
fn commands_of_the_documentation_are_understood() {
    let mut seen = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            let command = command.split('#').next().unwrap().trim();
            let words: Vec<&str> = command.split_whitespace().collect();
            let Some((program, arguments)) = words.split_first() else { continue };
            let is_ours = program.rsplit('/').next() == Some("millstream");
            // Usage patterns such as `[--home DIR]` and shell constructs cannot be run, so they are skipped.
            if !is_ours || command.contains(['[', '|', '>', '"', '\'']) || command.contains("...") {
                continue;
            }
            seen += 1;
            let arguments = arguments.iter().map(|word| (*word).into());
            let parsed = cli::parse(arguments, Vec::new(), 1);
            assert!(parsed.is_ok(), "{}: {command}: {:?}", page.display(), parsed.err());
        }
    }
    assert!(seen >= 6, "only {seen} commands were found");
}

#[test]
fn links_of_the_documentation_lead_to_files() {
    for (page, text) in pages() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://") && !link.contains(' ')) {
            assert!(page.parent().unwrap().join(link).exists(), "{}: {link}", page.display());
        }
    }
    // The index must list each page.
    let index = fs::read_to_string(Path::new(ROOT).join("docs/README.md")).unwrap();
    for (page, _) in pages().iter().filter(|(page, _)| page.parent().unwrap().ends_with("docs")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "README.md" || index.contains(&format!("({name})")),
            "{name} is not in docs/README.md"
        );
    }
}

/// Returns the text of a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// Returns the names of metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names = text.match_indices("millstream_").map(|(at, _)| {
        let rest = &text[at..];
        rest.split(|c: char| !is_part(c)).next().unwrap()
    });
    names.collect()
}

/// Returns the metrics that docs/metrics.md lists. Unit tests compare that page with the exposed metrics.
fn series() -> BTreeSet<String> {
    let page = text("docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('`');
        let name = cells.next()?;
        Some((name.to_owned(), cells.next()?.trim_matches([' ', '|']).split(' ').next()?.to_owned()))
    });
    let endings = |kind: &str| match kind {
        "histogram" => vec!["_bucket", "_sum", "_count"],
        "info" => vec!["_info"],
        _ => vec![""],
    };
    rows.flat_map(|(name, kind)| endings(&kind).into_iter().map(move |end| format!("{name}{end}"))).collect()
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_there_are() {
    let series = series();
    assert!(series.contains("millstream_viewers") && series.contains("millstream_build_info"), "{series:?}");
    for (file, least) in [
        ("packaging/grafana/millstream.json", 40),
        ("packaging/prometheus/alerts.yml", 15),
        ("packaging/prometheus/alerts_test.yml", 15),
    ] {
        let text = text(file);
        let asked = metrics(&text);
        let unknown: Vec<&&str> = asked.iter().filter(|name| !series.contains(**name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
        assert!(asked.len() >= least, "{file} has only {} metrics", asked.len());
    }
}

#[test]
fn each_alert_has_a_paragraph_and_a_test() {
    let (alerts, page) = (text("packaging/prometheus/alerts.yml"), text("docs/operations.md"));
    let tests = text("packaging/prometheus/alerts_test.yml");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in &names {
        assert!(page.contains(&format!("\n### {name}\n")), "docs/operations.md has no part on {name}");
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} has no test");
        let link = format!("docs/operations.md#{}", name.to_lowercase());
        assert!(alerts.contains(&link), "{name} does not lead to its paragraph");
    }
    let parts = page.lines().filter_map(|line| line.strip_prefix("### Millstream"));
    assert_eq!(parts.count(), names.len(), "docs/operations.md has a part on an alert that there is not");
}

/// Checks rules of Grafana that its schema does not contain.
#[test]
fn the_dashboard_has_each_panel_once_and_none_above_another() {
    let dashboard: Value = serde_json::from_str(&text("packaging/grafana/millstream.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in panels {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "{title} lies above another panel");
            }
        }
        let sources = panel["targets"].as_array().into_iter().flatten().chain([panel]);
        for source in sources.filter(|source| panel["type"] != "row" && !source.is_null()) {
            assert_eq!(source["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
    assert_eq!(names, ["datasource", "job", "instance"]);
}
