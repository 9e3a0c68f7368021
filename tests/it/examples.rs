//! The examples do what they say.

#[expect(dead_code, reason = "its `main` prints what is asserted here")]
#[path = "../../examples/custom_tool.rs"]
mod custom_tool;

#[tokio::test]
async fn a_custom_tool_is_called_and_its_result_is_read() {
    let told = custom_tool::ask().await.unwrap();
    assert_eq!(told, ["What shall I take with me?", "rain in Oslo", "Take an umbrella."]);
}
