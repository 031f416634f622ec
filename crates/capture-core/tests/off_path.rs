//! A tap that is off is one load, one comparison and one branch in the model's code, and a step that is off two
//! instructions more than its count and such a check, as the disassembler sees it.
#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Builds the example with the optimizer on its own code, the hook with it, and the rest of the crate as it stands.
fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["rustc", "--locked", "-p", "capture-core", "--example", "off_path", "--message-format=json"]);
    let built = build.args(["--", "-Copt-level=3", "-Cdebug-assertions=off"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).unwrap();
    let messages = messages.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut executables = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    executables.next_back().expect("an example is an executable")
}

/// The instructions of the function, `mov 0x1234(%rip),%eax` and the like.
fn instructions(disassembly: &str, function: &str) -> Vec<String> {
    let body = disassembly.lines().skip_while(|line| !(line.contains(function) && line.ends_with(">:")));
    let body = body.skip(1).take_while(|line| !line.trim().is_empty());
    // Address, bytes, instruction; a long instruction's further bytes have lines of their own.
    let third = |line: &str| line.split('\t').nth(2).map(|text| text.trim().to_owned());
    body.filter_map(third).collect()
}

/// The instructions of the function up to its first return, without the one that a build without link-time
/// optimization spends on the page's address, which never changes: it lies in the global offset table. `None` where
/// there is no disassembler.
fn off_path(function: &str) -> Option<Vec<String>> {
    if Command::new("objdump").arg("--version").output().is_err() {
        return None;
    }
    static DUMP: OnceLock<String> = OnceLock::new();
    let dump = DUMP.get_or_init(|| {
        let dump =
            Command::new("objdump").args(["--disassemble", "--demangle"]).arg(build()).output().unwrap();
        String::from_utf8(dump.stdout).unwrap()
    });
    let code = instructions(dump, function);
    let mut off: Vec<String> = code.iter().take_while(|text| !text.starts_with("ret")).cloned().collect();
    assert!(off.len() < code.len(), "no return: {code:#?}");
    if let [address, word, ..] = &off[..]
        && address.starts_with("mov ")
        && address.contains("(%rip),%rax")
        && word.contains("(%rax)")
    {
        off.remove(0);
    }
    Some(off)
}

fn names(code: &[String]) -> Vec<&str> {
    code.iter().map(|text| text.split_whitespace().next().unwrap()).collect()
}

#[test]
fn a_tap_that_is_off_is_a_load_a_comparison_and_a_branch() {
    let Some(off) = off_path("a_model_that_taps") else { return };
    let n_loads = off.iter().filter(|text| text.contains('(')).count();
    assert_eq!(n_loads, 1, "one load: {off:#?}");
    let fits = matches!(names(&off)[..], ["cmpl" | "cmpq", "jne"] | ["mov", "test", "jne"]);
    assert!(fits, "load, comparison, branch, return: {off:#?}");
}

/// Counting, and one comparison with the step that is due: no lock, no fence, no second branch.
#[test]
fn a_step_that_is_off_is_a_count_a_comparison_and_a_branch() {
    let Some(off) = off_path("a_model_that_steps") else { return };
    let names = names(&off);
    let n_branches = names.iter().filter(|name| name.starts_with('j')).count();
    assert!(names.len() <= 6 && n_branches == 1, "six instructions, one branch: {off:#?}");
    assert!(!off.iter().any(|text| text.contains("lock") || text.contains("fence") || text.contains("xchg")));
}
