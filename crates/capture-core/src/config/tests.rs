use super::*;
use std::os::unix::ffi::OsStringExt;

fn read(variables: &[(&str, &str)]) -> (Config, Vec<Warning>) {
    Config::from_env(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
}

/// Reads variables that must parse.
#[track_caller]
fn config(variables: &[(&str, &str)]) -> Config {
    let (config, warnings) = read(variables);
    assert_eq!(warnings, []);
    config
}

/// The one warning that `variable` must make beside `TPCAPTURE=on`; all is off then and else as by default.
#[track_caller]
fn check_warning(variable: &str, value: &str, words: &str) {
    let (config, warnings) = read(&[("TPCAPTURE", "on"), (variable, value)]);
    let [warning] = warnings.as_slice() else { panic!("expected one warning, found {warnings:?}") };
    assert_eq!(warning.to_string(), format!("{variable}={value:?}: {words}; capture is off"));
    assert_eq!(config.switch, Switch::Off);
    assert_eq!(config.texts(), Config::default().texts());
    assert_eq!((config.device_ring, config.strict, config.run), (64 << 20, false, None));
}

#[test]
fn nothing_set_is_off_with_the_documented_defaults() {
    for config in [config(&[]), config(&[("TPCAPTURE", ""), ("TPCAPTURE_RING", ""), ("TPCAPTURE_DIR", "")])] {
        assert_eq!(config.switch, Switch::Off);
        assert_eq!(config.dir, PathBuf::from("tpcapture"));
        assert_eq!((config.run, config.attach, config.strict), (None, None, false));
        assert_eq!((config.ring, config.device_ring), (268_435_456, 67_108_864));
        assert_eq!(config.budget, 10_737_418_240);
        assert_eq!(config.min_free, MinFree::Share(0.05));
        assert_eq!(config.on_full, OnFull::Wait(Duration::from_secs(10)));
    }
}

#[test]
fn the_switch_has_words_and_else_is_a_selection() {
    for (text, switch, selection) in [
        ("0", Switch::Off, "*"),
        ("off", Switch::Off, "*"),
        ("OFF", Switch::Off, "*"),
        ("standby", Switch::Standby, "*"),
        ("1", Switch::On, "*"),
        ("on", Switch::On, "*"),
        ("never", Switch::Never, "*"),
        ("*.q[limit=1]", Switch::On, "*.q[limit=1]"),
        ("*=off", Switch::On, "*=off"),
    ] {
        let config = config(&[("TPCAPTURE", text)]);
        assert_eq!((config.switch, config.selection.to_string().as_str()), (switch, selection), "{text}");
    }
}

#[test]
fn every_variable_is_read() {
    let config = config(&[
        ("TPCAPTURE", "*.q=stats"),
        ("TPCAPTURE_RANKS", "tp:0,1;pp:0"),
        ("TPCAPTURE_DIR", "/data/a b"),
        ("TPCAPTURE_RUN", "run-1.a_B"),
        ("TPCAPTURE_STEPS", "10-20/2"),
        ("TPCAPTURE_ATTACH", "model.layers.{0..3}.self_attn, *.mlp"),
        ("TPCAPTURE_BUDGET", "1e9"),
        ("TPCAPTURE_MIN_FREE", "2.5%"),
        ("TPCAPTURE_RING", "64KiB"),
        ("TPCAPTURE_DEVICE_RING", "0"),
        ("TPCAPTURE_ON_FULL", "wait:1500ms"),
        ("TPCAPTURE_STRICT", "1"),
    ]);
    assert_eq!(config.dir, PathBuf::from("/data/a b"));
    assert_eq!(config.run.as_deref(), Some("run-1.a_B"));
    assert_eq!(config.attach.as_deref(), Some("model.layers.{0..3}.self_attn, *.mlp"));
    assert_eq!((config.device_ring, config.strict), (0, true));
    assert_eq!(config.min_free, MinFree::Share(0.025));
    let texts = config.texts();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
    assert_eq!(
        texts,
        [
            ("select", "*.q=stats"),
            ("ranks", "tp:0,1;pp:0"),
            ("steps", "10-20/2"),
            ("budget", "1000000000"),
            ("min_free", "2.5%"),
            ("ring", "64KiB"),
            ("device_ring", "0"),
            ("on_full", "wait:1500ms"),
        ]
    );
}

#[test]
fn values_print_as_they_are_written() {
    for text in ["5%", "0%", "29%", "99.9%", "20GiB", "1000"] {
        assert_eq!(text.parse::<MinFree>().unwrap().to_string(), text);
    }
    for text in ["drop", "wait:forever", "wait:10s", "wait:2m", "wait:24h"] {
        assert_eq!(text.parse::<OnFull>().unwrap().to_string(), text);
    }
}

#[test]
fn a_value_that_does_not_parse_is_quoted_and_switches_off() {
    check_warning(
        "TPCAPTURE_RANKS",
        "0,x",
        "expected all, ranks such as 0,3 or 0-3, or places in the mesh such as tp:0,1;pp:0, found \"x\"",
    );
    check_warning("TPCAPTURE_RUN", "../x", &expected(RUN_NAME));
    check_warning("TPCAPTURE_STEPS", "x", "expected steps such as 10, 10-20 or 10-20/2, or all, found \"x\"");
    check_warning(
        "TPCAPTURE_ATTACH",
        "a,",
        "column 2: expected a tap name or a pattern such as model.layers.*, found the end",
    );
    check_warning("TPCAPTURE_BUDGET", "10G", "expected a size such as 10GiB, 500MB or 1e9 (bytes)");
    check_warning(
        "TPCAPTURE_BUDGET",
        "0",
        "expected a size of at least 1 byte, as TPCAPTURE=off is what writes nothing",
    );
    for value in ["100%", "-1%", "nan%", "x"] {
        check_warning(
            "TPCAPTURE_MIN_FREE",
            value,
            "expected a share from 0% to below 100%, or a size such as 20GiB",
        );
    }
    check_warning(
        "TPCAPTURE_RING",
        "65535",
        "expected a size of at least 64KiB, as less holds hardly a tensor",
    );
    check_warning("TPCAPTURE_RING", "0", "expected a size of at least 64KiB, as less holds hardly a tensor");
    check_warning("TPCAPTURE_RING", "2TiB", "expected a size of at most 1TiB, as it is memory");
    check_warning("TPCAPTURE_RING", "big", "expected a size such as 256MiB, 1GB or 1e9 (bytes)");
    check_warning(
        "TPCAPTURE_DEVICE_RING",
        "1KiB",
        "expected 0 (the model's stream waits for the copy to the host) or a size of at least 64KiB, as less holds \
         hardly a tensor",
    );
    for value in ["wait", "wait:", "wait:10", "block"] {
        check_warning(
            "TPCAPTURE_ON_FULL",
            value,
            "expected wait:TIME such as wait:10s, wait:forever or drop",
        );
    }
    check_warning("TPCAPTURE_ON_FULL", "wait:0s", "expected a time above 0, as drop is what never waits");
    check_warning(
        "TPCAPTURE_ON_FULL",
        "wait:25h",
        "expected a time of at most 24h, as wait:forever is what waits longer",
    );
    check_warning("TPCAPTURE_STRICT", "2", "expected 0 or 1");
}

#[test]
fn a_broken_selection_is_quoted_and_off() {
    let (config, warnings) = read(&[("TPCAPTURE", "*[dim0=x]")]);
    assert_eq!(config.switch, Switch::Off);
    assert_eq!(
        warnings[0].to_string(),
        "TPCAPTURE=\"*[dim0=x]\": column 7: expected a whole number of at most 64 bits, \
         found \"x\"; capture is off"
    );
    assert_eq!(warnings.len(), 1);
}

#[test]
fn never_stays_never() {
    let (config, warnings) = read(&[("TPCAPTURE", "never"), ("TPCAPTURE_RING", "x")]);
    assert_eq!((config.switch, warnings.len()), (Switch::Never, 1));
}

#[test]
fn only_a_directory_may_be_other_than_utf8() {
    let odd = || OsString::from_vec(b"/tmp/\xff".to_vec());
    let (config, warnings) = Config::from_env(|name| (name == "TPCAPTURE_DIR").then(odd));
    assert_eq!((config.dir, warnings), (PathBuf::from(odd()), vec![]));
    let (config, warnings) = Config::from_env(|name| (name == "TPCAPTURE").then(odd));
    assert_eq!(config.switch, Switch::Off);
    assert_eq!(warnings[0].to_string(), "TPCAPTURE=\"/tmp/\u{fffd}\": expected UTF-8; capture is off");
}

#[test]
fn a_run_name_is_one_path_component() {
    for name in ["a", "run-1", "A.b_c", &"x".repeat(200)] {
        assert!(is_run_name(name), "{name:?}");
    }
    for name in ["", ".", "..", ".a", "a/b", "a b", "é", "a\0", &"x".repeat(201)] {
        assert!(!is_run_name(name), "{name:?}");
    }
}
