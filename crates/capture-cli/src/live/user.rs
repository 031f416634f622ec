//! Users by name, and this command's.

use capture_core::{identity::Origin, request::By};
use std::fs;

/// Who asks.
pub(crate) fn asker() -> By {
    let Origin { host, pid, .. } = Origin::of_this_process();
    By { pid, user: name(rustix::process::geteuid().as_raw()), host }
}

/// The user's name in `/etc/passwd`, or `uid 1001` where it has none there.
pub(crate) fn name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&passwd, uid).unwrap_or_else(|| format!("uid {uid}"))
}

fn name_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_the_third_field() {
        let passwd = "root:x:0:0::/root:/bin/sh\n# odd\n:x:7:7\nada:x:1001:100:Ada,,,:/home/ada:/bin/sh\n";
        assert_eq!(name_in(passwd, 1001).as_deref(), Some("ada"));
        assert_eq!(name_in(passwd, 100), None);
        assert_eq!(name_in(passwd, 7), None);
        assert_eq!(name(u32::MAX), "uid 4294967295");
    }
}
