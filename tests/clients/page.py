"""The page in a real browser without a screen: python page.py URL."""

import sys

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
for switch in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]:
    options.add_argument(switch)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def part(name):
    return driver.find_element(By.ID, name)


def until(what, done):
    WebDriverWait(driver, 90).until(lambda _: done(), what)


def answers():
    return driver.find_elements(By.CSS_SELECTOR, "article.assistant")


def ask(text):
    part("text").send_keys(text)
    part("send").click()


try:
    driver.get(sys.argv[1])
    until("the model's name", lambda: part("state").text.startswith("ember"))

    # An answer comes with its thinking folded, and its counts.
    ask("Tell me a story about a mouse.")
    until("an answer with its counts", lambda: answers() and "a second" in answers()[0].text)
    thinking = answers()[0].find_element(By.TAG_NAME, "details")
    assert thinking.is_displayed() and thinking.get_attribute("open") is None, "thinking is there, and folded"
    assert len(answers()[0].text) > 20, answers()[0].text

    # What a user writes is text, whatever it looks like.
    driver.execute_script("arguments[0].value = arguments[1]", part("system"), "Be kind.")
    ask("<img src=x onerror=alert(1)><script>alert(2)</script>")
    until("a second answer", lambda: len(answers()) == 2 and not part("stop").is_displayed())
    user = driver.find_elements(By.CSS_SELECTOR, "article.user")[1]
    assert "<img" in user.text and not user.find_elements(By.TAG_NAME, "img")

    # Stop ends the answer; what came stays.
    driver.execute_script("arguments[0].open = true", part("settings"))
    effort = part("effort")
    effort.find_element(By.CSS_SELECTOR, "option[value=none]").click()
    ask("Tell me a very long story.")
    until("the stop button", lambda: part("stop").is_displayed())
    part("stop").click()
    until("the send button", lambda: part("send").is_displayed())
    assert not driver.find_elements(By.CSS_SELECTOR, "article.error")

    # A mistake is shown as the server says it.
    part("temperature").send_keys("-1")
    driver.execute_script("arguments[0].dispatchEvent(new Event('change'))", part("temperature"))
    ask("Hello!")
    until("an error", lambda: driver.find_elements(By.CSS_SELECTOR, "article.error"))
    assert "temperature" in driver.find_element(By.CSS_SELECTOR, "article.error").text

    part("reset").click()
    assert not answers()
    failures = [entry for entry in driver.get_log("browser") if "Content Security" in entry["message"]]
    assert not failures, failures
finally:
    driver.quit()
print("page: fine")
