//! What is asked for and not built yet is said, not passed over.

use capture_core::{control, notice};
use std::sync::Mutex;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn modules_that_nothing_attaches_to_are_said() {
    notice::set_sink(|line| SAID.lock().unwrap().push(line.to_owned()));
    control::start(|name| (name == "TPCAPTURE_ATTACH").then(|| "*.self_attn".into()));
    let expected =
        "TPCAPTURE_ATTACH=\"*.self_attn\": no plugin reads it yet; only taps in the code are captured";
    assert_eq!(*SAID.lock().unwrap(), [expected]);
    assert_eq!(control::status().state, "off");
}
