# frozen_string_literal: true

ActiveRecord::Schema.define(version: 1) do
  create_table "messages" do |t|
    t.string "text", null: false
    t.timestamps
  end
end
