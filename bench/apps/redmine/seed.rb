# frozen_string_literal: true

# The data of the Redmine that is measured: projects, people, issues with comments, wiki pages, news, forums, time.
# Run in Redmine's folder, on an empty database.
require File.join(Dir.pwd, "config/environment")

PASSWORD = "a pass phrase"
PROJECTS = { "alpha" => "Alpha", "beta" => "Beta", "gamma" => "Gamma", "delta" => "Delta" }.freeze
PEOPLE = 20
ISSUES = 60
PAGES = 12
BASE = Time.now.utc.to_date - 25
TEXT = <<~TEXT
  The *order page* shows a wrong total when a discount of _five percent_ is given twice, see #1 and [[Page 3]].

  * open the page
  * add the same discount again
  ** reload

  <pre><code class="ruby">
  total = items.sum { |item| item.price * item.count } * (1 - discount)
  </code></pre>

  |_. item |_. count |
  | tea | 3 |
  | "a link":https://example.org/ | 4 |
TEXT

Redmine::DefaultData::Loader.load("en")
{ rest_api_enabled: "1", notified_events: [], text_formatting: "textile", default_language: "en", host_name: "app.test",
  gravatar_enabled: "0", jsonp_enabled: "1" }.each { |name, value| Setting[name] = value }
admin = User.find_by!(login: "admin")
admin.update!(password: PASSWORD, password_confirmation: PASSWORD, must_change_passwd: false, mail_notification: "none")
User.current = admin
Token.where(user_id: admin.id).delete_all
Token.new(user: admin, action: "api").tap(&:save!).update_column(:value, "a" * 40)
Token.new(user: admin, action: "feeds").tap(&:save!).update_column(:value, "f" * 40)

people = (1..PEOPLE).map do |number|
  User.new(firstname: "Person", lastname: "No#{number}", mail: "person#{number}@example.org",
           mail_notification: "none", language: "en").tap do |user|
    user.login = "person#{number}"
    user.password = user.password_confirmation = PASSWORD
    user.save!
  end
end
roles = Role.givable.sorted.to_a
priorities = IssuePriority.active.to_a
statuses = IssueStatus.sorted.to_a
activity = TimeEntryActivity.active.first

PROJECTS.each_with_index do |(identifier, title), at|
  project = Project.new(name: title, description: TEXT, is_public: true)
  project.identifier = identifier
  project.enabled_module_names = Redmine::AccessControl.available_project_modules
  project.trackers = Tracker.sorted
  project.save!
  project.set_parent!(Project.find_by(identifier: "alpha")) if identifier == "delta"
  people.each_with_index do |user, number|
    Member.create!(project:, principal: user, roles: [roles[number % roles.size]])
  end
  version = Version.create!(project:, name: "1.#{at}", effective_date: BASE + 40)
  category = IssueCategory.create!(project:, name: "Checkout")
  (1..ISSUES).each do |number|
    issue = Issue.new(project:, tracker: project.trackers[number % 3], author: people[number % PEOPLE],
                      subject: "The total of order #{number} is wrong", description: TEXT,
                      priority: priorities[number % priorities.size], status: statuses.first,
                      assigned_to: people[(number * 7) % PEOPLE], fixed_version: version,
                      category: (category if number.even?), start_date: BASE + (number % 10),
                      due_date: BASE + 10 + (number % 20), estimated_hours: number % 8)
    issue.save!
    (number % 4).times do |change|
      issue.reload.init_journal(people[(number + change) % PEOPLE], "Tried again, now with *#{change}* discounts.")
      issue.done_ratio = (change + 1) * 10
      issue.save!
    end
    next if number % 3 != 0
    TimeEntry.create!(project:, issue:, user: admin, author: admin, hours: 1 + (number % 5), activity:,
                      spent_on: BASE + (number % 20), comments: "Work")
  end
  wiki = project.wiki || Wiki.create!(project:, start_page: "Wiki")
  ["Wiki", *(1..PAGES).map { |number| "Page_#{number}" }].each do |name|
    page = WikiPage.create!(wiki:, title: name)
    content = WikiContent.create!(page:, author: admin,
                                  text: "h1. #{name}\n\n{{toc}}\n\nh2. First\n\n#{TEXT}\n\nh2. Next\n\n#{TEXT}")
    content.reload.update!(text: "#{content.text}\n\nh2. Last\n\nSee [[Wiki]].", comments: "More")
  end
  3.times do |number|
    News.create!(project:, author: admin, title: "News #{number}", summary: "Some", description: TEXT)
  end
  board = Board.create!(project:, name: "Talk", description: "About everything")
  4.times do |number|
    topic = Message.create!(board:, author: admin, subject: "Topic #{number}", content: TEXT)
    2.times { Message.create!(board:, author: people[number], subject: "Re", content: "Yes.", parent: topic) }
  end
  Document.create!(project:, category: DocumentCategory.first, title: "Handbook", description: TEXT)
end

# Spread over the last weeks, so that every page has its order and no two things the same time.
{ Issue => %w[created_on updated_on], Journal => %w[created_on], News => %w[created_on],
  Message => %w[created_on updated_on],
  TimeEntry => %w[created_on updated_on], Project => %w[created_on updated_on], User => %w[created_on updated_on],
  Document => %w[created_on] }.each do |model, columns|
  columns.each do |column|
    model.where.not(column => nil)
      .update_all("#{column} = timestamp '#{BASE} 06:00' + #{model.table_name}.id * interval '73 minutes'")
  end
end
