use super::*;

fn env<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
    |name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into())
}

fn who(from: &str, rank: u32, world: Option<u32>, mesh: Mesh) -> Who {
    Who { rank: Some(rank), world, mesh, from: from.into() }
}

#[track_caller]
fn check(variables: &[(&str, &str)], expected: &Who) {
    assert_eq!(Who::from_env(env(variables)), (expected.clone(), vec![]));
}

/// What is known beside the warning that must be given.
#[track_caller]
fn check_warning(variables: &[(&str, &str)], expected: &Who, warning: &str) {
    let (found, warnings) = Who::from_env(env(variables));
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!((&found, warnings), (expected, vec![warning.to_owned()]));
}

fn sizes(text: &str, rank: u32) -> Mesh {
    Mesh::from_sizes(text, rank).unwrap()
}

const TORCHRUN: [(&str, &str); 2] = [("RANK", "6"), ("WORLD_SIZE", "8")];

#[test]
fn nothing_known_is_unknown() {
    check(&[], &Who::unknown());
    check(&[("TPCAPTURE_RANK", ""), ("RANK", " ")], &Who::unknown());
    check(&[("WORLD_SIZE", "8")], &Who::unknown());
    check(&[("TPCAPTURE_MESH", "pp=2,tp=4")], &Who::unknown());
}

#[test]
fn the_user_is_trusted_most() {
    let own = [("TPCAPTURE_RANK", "3"), ("TPCAPTURE_MESH", "pp=2,tp=2"), TORCHRUN[0], TORCHRUN[1]];
    let found = who("TPCAPTURE_RANK", 3, Some(4), sizes("pp=2,tp=2", 3));
    check(&own, &found);
    assert!(found.is_certain());
    assert_eq!((found.mesh.dims[0].coord, found.mesh.dims[1].coord, found.mesh.assumed), (1, 1, false));
    check(&own[..1], &who("TPCAPTURE_RANK", 3, None, Mesh::default()));
}

#[test]
fn the_launchers_world_counts_for_the_user_where_the_ranks_agree() {
    let mut both = vec![("TPCAPTURE_RANK", "6")];
    both.extend(TORCHRUN);
    check(&both, &who("TPCAPTURE_RANK", 6, Some(8), Mesh::assumed_tp(6, 8)));
    both[0].1 = "5";
    check(&both, &who("TPCAPTURE_RANK", 5, None, Mesh::default()));
    check(
        &[("TPCAPTURE_RANK", "5"), ("RANK", "x"), ("WORLD_SIZE", "8")],
        &who("TPCAPTURE_RANK", 5, None, Mesh::default()),
    );
}

#[test]
fn launchers_are_asked_in_order() {
    let all = [
        ("RANK", "6"),
        ("WORLD_SIZE", "8"),
        ("OMPI_COMM_WORLD_RANK", "5"),
        ("OMPI_COMM_WORLD_SIZE", "7"),
        ("PMI_RANK", "4"),
        ("PMI_SIZE", "6"),
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "5"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
    ];
    check(&all, &who("RANK", 6, Some(8), Mesh::assumed_tp(6, 8)));
    check(&all[1..], &who("OMPI_COMM_WORLD_RANK", 5, Some(7), Mesh::assumed_tp(5, 7)));
    check(&all[4..], &who("PMI_RANK", 4, Some(6), Mesh::assumed_tp(4, 6)));
    check(&all[6..], &who("SLURM_PROCID", 3, Some(5), Mesh::assumed_tp(3, 5)));
    // The batch script of a job is none of its tasks.
    check(&all[6..9], &Who::unknown());
    check(&[all[6], all[7], all[8], ("SLURM_STEP_ID", "4294967291")], &Who::unknown());
    assert!(!Who::from_env(env(&all)).0.is_certain());
}

#[test]
fn the_users_mesh_places_the_launchers_rank() {
    let mesh = |text| [TORCHRUN[0], TORCHRUN[1], ("TPCAPTURE_MESH", text)];
    check(&mesh("pp=2,tp=4"), &who("RANK", 6, Some(8), sizes("pp=2,tp=4", 6)));
    let assumed = who("RANK", 6, Some(8), Mesh::assumed_tp(6, 8));
    check_warning(
        &mesh("tp=4"),
        &assumed,
        "TPCAPTURE_MESH=\"tp=4\": rank 6 does not fit a mesh of 4 processes; it is not used",
    );
    check_warning(
        &mesh("tp=16"),
        &assumed,
        "TPCAPTURE_MESH=\"tp=16\": expected a mesh of 8 processes, as RANK says; it is not used",
    );
}

#[test]
fn a_process_that_is_alone_has_no_mesh() {
    check(&[("RANK", "0"), ("WORLD_SIZE", "1")], &who("RANK", 0, Some(1), Mesh::default()));
}

#[test]
fn a_wrong_value_is_unknown_and_never_0() {
    let unknown = &Who::unknown();
    check_warning(
        &[("TPCAPTURE_RANK", "x"), TORCHRUN[0], TORCHRUN[1]],
        unknown,
        "TPCAPTURE_RANK=\"x\": expected a global rank such as 3; the rank is unknown",
    );
    check_warning(
        &[("TPCAPTURE_RANK", "4"), ("TPCAPTURE_MESH", "tp=4")],
        unknown,
        "TPCAPTURE_MESH=\"tp=4\": rank 4 does not fit a mesh of 4 processes; the rank is unknown",
    );
    check_warning(
        &[("RANK", "-1"), ("WORLD_SIZE", "8"), ("PMI_RANK", "0"), ("PMI_SIZE", "8")],
        unknown,
        "RANK=\"-1\": expected a rank such as 3; the rank is unknown",
    );
    check_warning(
        &[("RANK", "8"), ("WORLD_SIZE", "8")],
        unknown,
        "RANK=\"8\": expected a rank below WORLD_SIZE=8; the rank is unknown",
    );
    check_warning(
        &[("RANK", "0"), ("WORLD_SIZE", "0")],
        unknown,
        "WORLD_SIZE=\"0\": expected a number of ranks; the rank is unknown",
    );
    check_warning(
        &[("TPCAPTURE_MESH", "tp")],
        unknown,
        "TPCAPTURE_MESH=\"tp\": expected name=size with a name of letters and a size of at least 1, as in \
         pp=2,tp=4, found \"tp\"; it is not used",
    );
}

#[test]
fn a_rank_without_its_world_is_not_used() {
    let warning = "RANK=\"0\": expected WORLD_SIZE beside it; it is not used";
    check_warning(&[("RANK", "0")], &Who::unknown(), warning);
    check_warning(
        &[("RANK", "0"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")],
        &who("PMI_RANK", 1, Some(2), Mesh::assumed_tp(1, 2)),
        warning,
    );
}

#[test]
fn a_framework_gives_what_the_user_left_open() {
    let told = |variables, mesh| Who::from_framework("vllm", 6, 8, mesh, env(variables));
    let vllm = |mesh| (who("vllm", 6, Some(8), mesh), vec![]);
    let own = sizes("dp=4,tp=2", 6);
    assert_eq!(told(&[], None), vllm(Mesh::assumed_tp(6, 8)));
    assert_eq!(told(&[], Some(own.clone())), vllm(own.clone()));
    assert_eq!(told(&[("TPCAPTURE_MESH", "pp=2,tp=4")], Some(own)), vllm(sizes("pp=2,tp=4", 6)));
    let (found, warnings) = Who::from_framework("vllm", 8, 8, None, env(&[]));
    assert_eq!(found, Who::unknown());
    assert_eq!(warnings[0].to_string(), "vllm=\"8\": expected a rank below 8; the rank is unknown");
}
