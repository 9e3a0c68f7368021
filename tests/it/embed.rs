//! The example of an embedding program does what it says.

#[path = "../../examples/embed/src/main.rs"]
#[allow(dead_code, reason = "its main function is not called here")]
mod example;

#[tokio::test]
async fn two_engines_live_in_one_process_with_tools_of_their_own() {
    let (first, second) = tokio::try_join!(example::play("Ada"), example::play("Grace")).unwrap();
    for (seen, greeting) in [(first, "Ada greets the postman."), (second, "Grace greets the postman.")] {
        assert!(seen.contains(&greeting.to_owned()), "{seen:?}");
        assert!(seen.contains(&"prompt.admitted".to_owned()), "{seen:?}");
        assert_eq!(seen.last().map(String::as_str), Some("step.finished"));
    }
}
