//! Public addresses that are looked up because of the settings.

use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::jobs::Work;
use crate::types::Lookup;

const CANDIDATES: (&str, &str) = ("webrtc.candidates", "media.example.com,auto=stun.example.com:3478");

fn rig() -> Rig {
    let mut rig = Rig::with(&[CANDIDATES], &[]);
    rig.run_for(Duration::from_millis(1));
    rig
}

impl Rig {
    /// Answers the two look-ups in progress; returns false if there are none.
    fn look_up(&mut self, name: Result<&[&str], &str>, seen: Result<&str, &str>) -> bool {
        let asked = std::mem::take(&mut self.resolves);
        let (ours, others) = std::mem::take(&mut self.files).into_iter().partition::<Vec<_>, _>(
            |(_, work)| matches!(work, Work::FindSeen { server, port: 3478 } if server == "stun.example.com"),
        );
        self.files = others;
        let address = |ip: &&str| SocketAddr::new(ip.parse().unwrap(), 0);
        for AskedName { id, host, .. } in &asked {
            assert_eq!(host, "media.example.com");
            let found = name.map(|ips| ips.iter().map(address).collect()).map_err(str::to_owned);
            self.done(*id, Outcome::Resolved(found));
        }
        for (id, _) in &ours {
            let found = seen.map(|ip| vec![address(&ip)]).map_err(str::to_owned);
            self.done(*id, Outcome::Resolved(found));
        }
        assert_eq!(asked.len(), ours.len());
        !asked.is_empty()
    }

    /// Returns the addresses last sent to the workers; `None` if none were sent since the last call.
    fn found(&mut self) -> Option<Vec<IpAddr>> {
        let mut told = None;
        self.posted.retain(|(_, mail)| match mail {
            ToWorker::Server(server) => {
                let name = Lookup::Name("media.example.com".to_owned());
                let seen = Lookup::Seen { server: "stun.example.com".to_owned(), port: 3478 };
                told =
                    Some([name, seen].iter().flat_map(|lookup| server.site.found[lookup].clone()).collect());
                false
            }
            _ => true,
        });
        told
    }
}

fn ips(list: &[&str]) -> Option<Vec<IpAddr>> {
    Some(list.iter().map(|ip| ip.parse().unwrap()).collect())
}

#[test]
fn addresses_are_found_at_start_followed_and_kept_while_a_look_up_fails() {
    let mut rig = rig();
    assert_eq!(rig.found(), ips(&[]), "the server starts without them");
    assert!(rig.look_up(Ok(&["203.0.113.8", "2001:db8::8"]), Err("the server does not answer")));
    assert_eq!(rig.found(), ips(&["203.0.113.8", "2001:db8::8"]));
    // A failed look-up is retried soon.
    rig.run_for(secs(29));
    assert!(rig.files.is_empty());
    rig.run_for(secs(1));
    let [(id, _)] = &std::mem::take(&mut rig.files)[..] else { panic!("one look-up") };
    rig.done(*id, Outcome::Resolved(Ok(vec!["198.51.100.9:4000".parse().unwrap()])));
    assert_eq!(rig.found(), ips(&["203.0.113.8", "2001:db8::8", "198.51.100.9"]));
    // Workers get nothing if the addresses are the same in another order, or if the look-ups fail.
    rig.run_for(secs(330));
    assert!(rig.look_up(Ok(&["2001:db8::8", "203.0.113.8"]), Ok("198.51.100.9")));
    assert_eq!(rig.found(), None);
    rig.run_for(secs(330));
    assert!(rig.look_up(Err("no such name"), Err("the server does not answer")));
    assert_eq!(rig.found(), None);
    rig.run_for(secs(30));
    assert!(rig.look_up(Ok(&["203.0.113.99"]), Ok("198.51.100.9")));
    assert_eq!(rig.found(), ips(&["203.0.113.99", "198.51.100.9"]));
}
